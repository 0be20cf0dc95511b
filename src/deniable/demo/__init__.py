"""The made-up firm of `deniable serve --demo`. Only the command and the overview use it."""
