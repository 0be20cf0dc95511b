"""All figures as Altair charts, shared by notebooks, web pages, the command line and the paper."""

from deniable._extras import require

require("altair", extra="charts")
require("vl_convert", extra="charts")
