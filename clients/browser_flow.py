"""Opens services of a job in a real browser: `.venv-browser/bin/python browser_flow.py`.

The first line of its input says where: {"lab": URL, "board": URL, "folder": FOLDER}. It answers
with a line of what it saw. After a second line of input, it answers with what the same pages show
then. Screenshots and the browser's profile are in the folder.
"""

import json
import pathlib
import sys

from playwright.sync_api import expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
# Do not wait for the internet, which is not reachable.
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LIMIT_MS = 30_000
# What the policy of a page has blocked, recorded in the page itself.
NOTE_VIOLATIONS = """
window.stopped = [];
document.addEventListener("securitypolicyviolation", (event) =>
    window.stopped.push(`${event.effectiveDirective} ${event.blockedURI}`));
"""


def heard(page):
    """Collects the errors of a page: uncaught ones, and those on its console."""
    errors = []
    page.on("pageerror", lambda error: errors.append(f"error: {error}"))
    page.on(
        "console",
        lambda said: errors.append(f"console: {said.text}") if said.type == "error" else None,
    )
    return errors


def use_lab(page, folder):
    """A notebook and a terminal, as a person uses them."""
    launcher = page.locator(".jp-Launcher")
    expect(launcher).to_be_visible()
    page.screenshot(path=folder / "lab.png")
    launcher.locator('.jp-LauncherCard[data-category="Notebook"]').first.click()
    cell = page.locator(".jp-Notebook .jp-Cell .cm-content").first
    expect(cell).to_be_visible()
    # A cell that is run before there is a kernel is never executed.
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle")
    cell.click()
    page.keyboard.type("print(6 * 7)")
    page.keyboard.press("Shift+Enter")
    output = page.locator(".jp-Notebook .jp-OutputArea-output").first
    expect(output).to_have_text("42\n")
    page.screenshot(path=folder / "notebook.png")
    page.keyboard.press("Control+S")
    page.get_by_role("button", name="Rename and Save").click()
    page.get_by_title("New Launcher", exact=True).click()
    launcher.locator(".jp-LauncherCard", has_text="Terminal").click()
    terminal = page.locator(".jp-Terminal .xterm-screen")
    expect(terminal).to_be_visible()
    terminal.click()
    # The terminal is painted on a canvas, so the command writes a file that can be read.
    page.keyboard.type("echo $((6 * 7)) $AZUREML_RUN_ID | tee typed.txt\n")
    path = page.evaluate("JSON.parse(document.getElementById('jupyter-config-data').text).baseUrl")
    typed = page.wait_for_function(
        """async (path) => {
            const found = await fetch(path + "api/contents/typed.txt");
            return found.ok && (await found.json()).content;
        }""",
        arg=path,
    ).json_value()
    page.screenshot(path=folder / "terminal.png")
    return {"cell": output.inner_text(), "terminal": typed}


def use_board(page, folder):
    expect(page.locator("tb-webapp")).to_be_attached()
    card = page.locator("card-view", has_text="loss").first
    expect(card).to_be_visible()
    # The last value of the curve.
    expect(card).to_contain_text("0.05")
    page.screenshot(path=folder / "board.png")
    return {"card": card.inner_text()}


def look(context, address, use, folder):
    page = context.new_page()
    errors = heard(page)
    page.goto(address)
    try:
        seen = use(page, folder)
    except BaseException:
        page.screenshot(path=folder / "failed.png")
        print(page.url, errors, page.evaluate("window.stopped"), file=sys.stderr)
        raise
    seen |= {"address": page.url, "errors": errors, "stopped": page.evaluate("window.stopped")}
    return page, seen


def say(value):
    print(json.dumps(value), flush=True)


def main():
    wanted = json.loads(sys.stdin.readline())
    folder = pathlib.Path(wanted["folder"])
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            folder / "profile",
            executable_path=CHROMIUM,
            args=QUIET,
            headless=True,
            # The certificate authority is this server's own.
            ignore_https_errors=True,
            viewport={"width": 1280, "height": 800},
        )
        context.set_default_timeout(LIMIT_MS)
        expect.set_options(timeout=LIMIT_MS)
        context.add_init_script(NOTE_VIOLATIONS)
        lab, seen_lab = look(context, wanted["lab"], use_lab, folder)
        board, seen_board = look(context, wanted["board"], use_board, folder)
        say({"lab": seen_lab, "board": seen_board})
        sys.stdin.readline()
        answers = [context.new_page().goto(page.url) for page in (lab, board)]
        say([[answer.status, answer.text()] for answer in answers])
        context.close()


main()
