// What the page holds (decoded from its blocks), and what is shown: the picked handoff and the chosen edge. The address
// of the page says the latter, so that a view can be shared and the browser's back and forward work:
// #handoff=0>1/0/28&edge=0

const page = { times: {} }; // milliseconds since navigation, for benchmarks
const state = { handoff: null, edge: null };
const followers = [];

function follow(follower) {
  followers.push(follower);
}

function stateOfAddress() {
  const found = { handoff: null, edge: null };
  for (const part of location.hash.slice(1).split("&")) {
    const at = part.indexOf("=");
    const name = part.slice(0, at);
    if (at < 0 || !(name in found)) continue;
    try {
      found[name] = decodeURIComponent(part.slice(at + 1));
    } catch {
      // not what this page writes: as if it was not there
    }
  }
  const edge = /^\d{1,6}$/.test(found.edge ?? "") ? Number(found.edge) : null;
  found.edge = edge !== null && edge < page.edges.length ? edge : null;
  return found;
}

function addressOf(wanted) {
  const parts = [];
  if (wanted.handoff !== null) {
    const readable = { "%2F": "/", "%3E": ">", "%40": "@", "%3A": ":" };
    parts.push(`handoff=${encodeURIComponent(wanted.handoff).replace(/%(2F|3E|40|3A)/g, (code) => readable[code])}`);
  }
  if (wanted.edge !== null) parts.push(`edge=${wanted.edge}`);
  return parts.join("&");
}

// Everything that changes what is shown goes through the address.
function show(change) {
  const address = addressOf({ ...state, ...change });
  if (address !== addressOf(state)) location.hash = address;
}

function tellFollowers() {
  const before = { ...state };
  Object.assign(state, stateOfAddress());
  for (const follower of followers) follower(state, before);
}

addEventListener("hashchange", () => {
  const hash = location.hash.slice(1);
  if (hash === "" || /^(handoff|edge)=/.test(hash)) tellFollowers();
});
