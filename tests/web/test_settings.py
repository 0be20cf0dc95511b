"""People and settings in Chromium: an invitation, a second person, keys; by keyboard, in both themes."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, expect
from tests.web.site import EXPERIMENT, HOSTILE, Site
from tests.web.watching import Tab, Theme, tab

PASSWORD = "a long walk by the sea"


def invited(admin: Tab, name: str, role: str) -> str:
    """Invite a person in the pages; returns the link's path."""
    admin.open("/settings")
    form = admin.page.locator("form", has=admin.page.get_by_role("heading", name="Invite a person"))
    form.get_by_label("Name").fill(name)
    form.get_by_label("Role").select_option(role)
    form.get_by_role("button", name="Make a link").click()
    link = admin.page.locator("#invite-link").inner_text()
    admin.assert_well_behaved()
    admin.assert_accessible()
    return link.removeprefix(admin.site.url)


def joined(opened: Tab, path: str) -> None:
    """Choose a password, with the keyboard alone."""
    opened.open(path)
    opened.assert_accessible()
    keyboard = opened.page.keyboard
    expect(opened.page.get_by_label("Password", exact=True)).to_be_focused()
    keyboard.type(PASSWORD)
    keyboard.press("Tab")
    keyboard.type(PASSWORD)
    keyboard.press("Enter")
    expect(opened.page.get_by_role("button", name="Sign out")).to_be_visible()


def test_from_an_invitation_to_a_second_person(site: Site, browser: Browser) -> None:
    site.service.experiments.create("big", arms=["a", "b"], segments=["s"], budget=2)
    with tab(browser, site, secret=site.secret("admin")) as admin:
        manager = invited(admin, "mia@firm.example", "manager")
        officer = invited(admin, "otto@firm.example", "privacy-officer")
    with tab(browser, site) as mia, tab(browser, site, theme="dark", width=390) as otto:
        joined(mia, manager)
        joined(otto, officer)
        otto.open("/settings")
        otto.page.get_by_label("Starting an experiment above this budget").fill("1.5")
        otto.page.get_by_label("Name of the firm").fill("Acme")
        otto.page.get_by_role("button", name="Save").click()
        otto.page.get_by_text("settings are saved").wait_for()
        mia.open("/experiments/big/do/start")
        mia.page.get_by_role("button", name="Start").click()
        mia.page.get_by_text("needs a second person").wait_for()
        otto.open("/settings")
        otto.page.get_by_role("button", name="Grant").click()
        otto.page.get_by_text("can do it now").wait_for()
        otto.assert_well_behaved()
        otto.assert_accessible()
        mia.open("/experiments/big/do/start")
        mia.page.get_by_role("button", name="Start").click()
        mia.page.get_by_text("The experiment is running.").wait_for()
        expect(mia.page.locator("body")).to_contain_text("Started, 2 nats committed, by mia@firm")
        mia.assert_well_behaved()
        mia.open("/settings")
        mia.page.get_by_role("button", name=re.compile("^End")).click()
        expect(mia.page.get_by_role("heading", name="Sign in", exact=True)).to_be_visible()
        mia.page.get_by_label("Name").fill("MIA@firm.example")
        mia.page.get_by_label("Password").fill(PASSWORD)
        mia.page.get_by_role("button", name="Sign in", exact=True).click()
        expect(mia.page.get_by_role("button", name="Sign out")).to_be_visible()
    assert site.service.experiments.get("big").status == "running"
    assert site.service.firm.settings().name == "Acme"


def test_keys_and_hostile_labels(site: Site, browser: Browser) -> None:
    """In a store of its own: axe takes seconds for the keys that other tests leave behind."""
    for label in HOSTILE:
        if label.isprintable() and len(label) <= 200:
            site.service.keys.create(label, ["read"])
    site.service.people.invite("x" * 64, "viewer")
    themes: tuple[tuple[Theme, int], ...] = (("light", 1280), ("dark", 390))
    for theme, width in themes:
        secret = site.secret("admin")
        with tab(browser, site, secret=secret, theme=theme, width=width) as opened:
            opened.open("/settings")
            opened.page.get_by_label("What it is for").fill(f"shop {theme}")
            opened.page.get_by_role("checkbox", name="decide").check()
            opened.page.get_by_role("button", name="Create the key").click()
            shown = opened.page.locator("#new-secret").inner_text()
            assert site.service.keys.authenticate(shown) is not None
            opened.assert_well_behaved()
            opened.assert_accessible()
            opened.open("/settings")
            expect(opened.page.locator("#new-secret")).to_have_count(0)
            opened.page.get_by_role("button", name=f"Revoke shop {theme}").click()
            opened.page.get_by_text("is revoked").wait_for()
            assert site.service.keys.authenticate(shown) is None
            opened.open(f"/experiments/{EXPERIMENT}")
            opened.page.get_by_role("link", name="Settings").click()
            expect(opened.page.get_by_role("heading", name="Settings", level=1)).to_be_visible()
