"""Reports: results in, text out. They compute nothing."""
