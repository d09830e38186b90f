"""What a page shows, as plain texts."""

from __future__ import annotations


def cells(page, selector):
    """Return the texts of a table's body, row by row; rows that are hidden are left out."""
    script = """table => [...table.tBodies[0].rows].filter(row => !row.hidden && !row.classList.contains("spacer"))
                  .map(row => [...row.cells].map(cell => cell.textContent.trim()))"""
    return page.locator(selector).evaluate(script)


def heads(page, selector):
    """Return the texts of a table's heads."""
    return page.locator(selector).evaluate(
        "table => [...table.tHead.rows[0].cells].map(cell => cell.textContent.trim())"
    )


def caption(page, text):
    """Return the selector of the table with this caption."""
    return f'table:has(caption:text-is("{text}"))'


def picked(page, handoff_id):
    """Wait until a handoff is drawn."""
    page.wait_for_function("id => document.getElementById('picked').dataset.handoff === id", arg=handoff_id)
    page.wait_for_selector("#picked[data-state=drawn]")


def pick(page, handoff_id):
    """Pick a handoff and wait until it is drawn."""
    page.evaluate("id => gapscope.show({ handoff: id })", handoff_id)
    picked(page, handoff_id)
