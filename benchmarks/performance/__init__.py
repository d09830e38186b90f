"""What `docs/performance.md` shows: how it is measured, kept and made into the page.

`inputs` are the files, `cases` what is run on them, `measure` runs one process and watches its memory, `machine` says
where, `records` keeps every run as a line of JSON, `page` makes the page from these lines alone.
"""
