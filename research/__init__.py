"""The paper's figures, tables and claims, and some beyond it: one module per study, `run(context)`."""
