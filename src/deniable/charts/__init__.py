"""Every figure once, as an Altair chart: notebook, web page, command line and paper figure share it."""

from deniable._extras import require

require("altair", extra="charts")
require("vl_convert", extra="charts")
