// Runs once for all pages that a browser shows: over HTTP/1.1 a browser has only six connections to a server, so
// these pages share one stream of changes.
"use strict";

const streams = new Map(); // of addresses

function join(port, address, after) {
  leave(port);
  let stream = streams.get(address);
  if (!stream) streams.set(address, stream = { pages: new Set(), source: null, known: after });
  stream.source?.close();
  stream.pages.add(port);
  // The server tells what came after what every page knows.
  stream.known = Math.min(stream.known, after);
  const source = stream.source = new EventSource(address + "?after=" + stream.known);
  const tell = (message) => { if (stream.source === source) stream.pages.forEach((page) => page.postMessage(message)); };
  for (const kind of ["hello", "beat", "change"]) {
    source.addEventListener(kind, (e) => {
      const data = JSON.parse(e.data);
      if (data.seq && stream.source === source) stream.known = data.seq;
      tell({ kind, data });
    });
  }
  source.onerror = () => {
    const closed = source.readyState === EventSource.CLOSED;
    tell({ kind: "error", closed });
    if (closed && streams.get(address) === stream) streams.delete(address);
  };
}

function leave(port) {
  for (const [address, stream] of streams) {
    if (!stream.pages.delete(port) || stream.pages.size > 0) continue;
    stream.source.close();
    streams.delete(address);
  }
}

onconnect = (e) => {
  const port = e.ports[0];
  port.onmessage = ({ data }) => data.join ? join(port, data.join, data.after) : leave(port);
};
