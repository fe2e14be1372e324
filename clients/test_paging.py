"""Pages: every list can be read in small pages that add up while items are added and deleted."""

import uuid

import pytest
from test_access import CLUSTER, LOCKS, ML, ROLES, USERS, new_user, owner  # noqa: F401

SUB = "/subscriptions/paging-sub"
GROUP = f"{SUB}/resourceGroups/home"
HOME = f"{GROUP}/providers/{ML}/workspaces/home"
LOCK = {"properties": {"level": "CanNotDelete"}}


def put(path, body):
    return lambda caller, name: caller("PUT", f"{path}/{name}", body)


def put_user(caller, name):
    return caller("PUT", f"{USERS}/{name}", {})


# What is listed where, how an item is created, what names it, and where it is deleted.
LISTS = {
    "groups": (f"{SUB}/resourceGroups", put(f"{SUB}/resourceGroups", {"location": "eastus"})),
    "workspaces": (
        f"{GROUP}/providers/{ML}/workspaces",
        put(f"{GROUP}/providers/{ML}/workspaces", {"location": "eastus"}),
    ),
    "computes": (f"{HOME}/computes", put(f"{HOME}/computes", CLUSTER)),
    "locks": (f"{GROUP}/{LOCKS}", put(f"{GROUP}/{LOCKS}", LOCK)),
    "users": (USERS, put_user),
}


@pytest.fixture(scope="module")
def home(owner):  # noqa: F811
    assert owner("PUT", HOME, {"location": "eastus"}).status_code == 200
    return owner


def pages(caller, path, top, between=lambda: None):
    """All names, following the links page by page; `between` is called in the middle."""
    url, params, names = caller.server.url + path, {"api-version": "1", "$top": str(top)}, []
    while url:
        page = caller.session.get(url, params=params, timeout=10)
        assert page.status_code == 200, page.text
        items = page.json()["value"]
        assert len(items) <= top
        names += [item["name"] for item in items]
        url, params = page.json()["nextLink"], None
        assert url is None or url.startswith(caller.server.url + "/")
        between()
    return names


@pytest.mark.parametrize("kind", LISTS)
def test_pages_add_up_while_things_come_and_go(home, kind):
    path, make = LISTS[kind]
    tag = uuid.uuid4().hex[:6]
    stay = [f"p{tag}-{number}x" for number in range(5)]
    for name in stay:
        assert make(home, name).status_code in (200, 201), name
    gone = f"p{tag}-2aa"
    assert make(home, gone).status_code in (200, 201)
    late = iter([f"p{tag}-0aa", f"p{tag}-4zz"])

    def between():
        name = next(late, None)
        if name:
            assert make(home, name).status_code in (200, 201)
            home("DELETE", f"{path}/{gone}")

    names = [name for name in pages(home, path, 2, between) if name.startswith(f"p{tag}-")]
    assert len(names) == len(set(names)), "shown twice"
    assert set(stay) <= set(names), "missing, although it existed all the time"
    for name in [*stay, gone, f"p{tag}-0aa", f"p{tag}-4zz"]:
        home("DELETE", f"{path}/{name}")


def test_jobs_and_roles_have_pages_too(home, new_user):  # noqa: F811
    made = home("PUT", f"{HOME}/computes/paging-jobs", CLUSTER)
    assert made.status_code == 201, made.text
    body = {"jobType": "Command", "command": "true", "computeId": f"{HOME}/computes/paging-jobs"}
    jobs = [f"paged-{number}" for number in range(3)]
    for name in jobs:
        put = home("PUT", f"{HOME}/jobs/{name}", {"properties": body})
        assert put.status_code in (200, 201), put.text
    assert pages(home, f"{HOME}/jobs", 1) == jobs[::-1]
    for _ in range(3):
        new_user("Reader", HOME)
    assert len(pages(home, f"{HOME}/{ROLES}", 2)) == 3


@pytest.mark.parametrize("top", ["0", "-1", "x", "1e3", "99999999999999999999"])
@pytest.mark.parametrize("kind", LISTS)
def test_a_bad_size_is_refused(home, kind, top):
    path, _ = LISTS[kind]
    answer = home.session.get(home.server.url + path, params={"$top": top}, timeout=10)
    assert answer.status_code == 400 and answer.json()["error"]["target"] == "$top"


@pytest.mark.parametrize("kind", LISTS)
def test_a_made_up_token_shows_nothing_else(home, kind):
    path, _ = LISTS[kind]
    for token in ["\U0010ffff", "../..", "%00", "'; --", "9" * 4_000]:
        answer = home.session.get(home.server.url + path, params={"$skipToken": token}, timeout=10)
        assert answer.status_code in (200, 400), answer.text
