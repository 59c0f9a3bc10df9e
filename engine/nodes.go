package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/version"
	"github.com/gopherqueue/gq/store"
)

// Every engine is a node. If several processes share a store, each running engine announces itself
// and its workers there, so that all of them list the same workers. An announcement is one or more
// documents of nodeKind. The first has the node's id as its name; the others, id/1 and so on, have
// the workers that did not fit.

const nodeKind = store.NodeKind

const (
	nodeBusy   = 5 * time.Second        // between announcements of a node with workers
	nodeIdle   = time.Minute            // between announcements of a node without workers
	nodeSoon   = 200 * time.Millisecond // from a worker's first call to the next announcement
	nodeFresh  = 15 * time.Second       // how long an announcement tells about workers
	nodeListed = store.NodeLive         // how long a node is listed after its last announcement
	nodeSilent = 5 * time.Minute        // after this any node deletes the announcement
	nodeWithin = 5 * time.Second        // time limit for one announcement

	nodeWorkers = 1000      // workers of one document
	nodeBytes   = 512 << 10 // size of one document, unless a single worker needs more
	nodeDocs    = 64        // documents of one announcement; further workers are left out
)

// node is this engine among those on its store.
type node struct {
	gq.Node
	shared  bool        // other processes may have the store open
	running atomic.Bool // it is announced

	// What the goroutine of Run uses.
	docs []uint64 // versions of the announcement's documents
	// looked is when this node last looked for nodes that are gone.
	looked time.Time
}

func newNode(s store.Store, release string) *node {
	if release == "" {
		release = version.Release()
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	_, shared := s.(store.Shared)
	n := &node{shared: shared, Node: gq.Node{
		ID: rand.Text(), Host: host, PID: os.Getpid(), Version: release, Started: time.Now(),
	}}
	if u, ok := s.(store.Upgradable); ok {
		n.Layout = u.Layout()
	}
	return n
}

// announcement is the content of a document.
type announcement struct {
	store.NodeLayout
	Host    string      `json:"host,omitzero"`
	PID     int         `json:"pid,omitzero"`
	Version string      `json:"version,omitzero"`
	Started time.Time   `json:"started,omitzero"`
	Count   int         `json:"count,omitzero"` // listed workers in all documents
	Workers []announced `json:"workers,omitempty"`
}

// announced is a worker in an announcement.
type announced struct {
	Name    string       `json:"name"`
	Version string       `json:"version,omitzero"`
	Queues  []string     `json:"queues,omitempty"`
	Types   []string     `json:"types,omitempty"`
	Offers  []string     `json:"offers,omitempty"`
	MaxCost int64        `json:"max_cost,omitzero"`
	Waiting int          `json:"waiting,omitzero"`
	Running int          `json:"running,omitzero"`
	Streams int          `json:"streams,omitzero"`
	Stopped bool         `json:"stopped,omitzero"`
	Leases  []gq.LeaseID `json:"leases,omitempty"`
	Seen    time.Time    `json:"seen"`
}

// size estimates the number of bytes that a worker takes in a document.
func (a *announced) size() int {
	n := 200 + len(a.Name)
	for _, names := range [][]string{a.Queues, a.Types, a.Offers} {
		for _, name := range names {
			n += len(name) + 8
		}
	}
	for _, id := range a.Leases {
		n += len(id) + 3
	}
	return n
}

// documents splits an announcement. A worker that would not fit into a document of its own is
// announced without its types and offers.
func (a announcement) documents() ([][]byte, error) {
	var docs [][]byte
	workers := a.Workers
	for len(docs) == 0 || len(workers) > 0 && len(docs) < nodeDocs {
		n, size := 0, 0
		for n < min(len(workers), nodeWorkers) {
			w := &workers[n]
			if w.size() > nodeBytes {
				w.Types, w.Offers, w.Queues = nil, nil, w.Queues[:min(len(w.Queues), 100)]
			}
			if size += w.size(); n > 0 && size > nodeBytes {
				break
			}
			n++
		}
		a.Workers, workers = workers[:n], workers[n:]
		data, err := json.Marshal(a)
		if err != nil {
			return nil, fmt.Errorf("encode an announcement: %w", err)
		}
		docs = append(docs, data)
		a = announcement{NodeLayout: store.NodeLayout{Time: a.Time}}
	}
	return docs, nil
}

// nodeDoc is the name of the i-th document of a node.
func nodeDoc(id string, i int) string {
	if i == 0 {
		return id
	}
	return id + "/" + strconv.Itoa(i)
}

// announce writes the node and its workers to the store. It returns how many workers it has.
func (e *Engine) announce(ctx context.Context) (workers int, err error) {
	if !e.clock.known() {
		now, err := e.store.Now(ctx)
		if err != nil {
			return 0, err
		}
		e.clock.observe(now)
	}
	n := e.node
	list := e.workers.list(n.ID, &e.clock)
	a := announcement{NodeLayout: store.NodeLayout{Time: e.clock.at(time.Now()), Layout: n.Layout}, Host: n.Host, PID: n.PID, Version: n.Version, Started: e.clock.at(n.Started), Count: e.countListed(list)}
	for i := range list {
		w := &list[i]
		a.Workers = append(a.Workers, announced{
			Name: w.Name, Version: w.Version, Queues: w.Queues, Types: w.Types, Offers: w.Offers, MaxCost: w.MaxCost,
			Waiting: w.Waiting, Running: w.Running, Streams: w.streams, Stopped: w.stopped, Leases: w.Leases, Seen: w.LastSeen,
		})
	}
	data, err := a.documents()
	if err != nil {
		return 0, err
	}
	err = e.putNode(ctx, data)
	if errors.Is(err, gq.ErrConflict) {
		// Another node deleted the documents while this process was suspended, or the outcome of
		// the last write is unknown.
		if err = e.readVersions(ctx); err == nil {
			err = e.putNode(ctx, data)
		}
	}
	if err == nil && time.Since(n.looked) > nodeIdle {
		n.looked = time.Now()
		err = e.forgetNodes(ctx)
		if u, ok := e.store.(store.Upgradable); ok && err == nil {
			err = u.FinishUpgrade(ctx)
		}
	}
	return len(list), err
}

// putNode replaces the documents of this node; none deletes them.
func (e *Engine) putNode(ctx context.Context, data [][]byte) error {
	n := e.node
	docs := make([]store.Doc, max(len(data), len(n.docs)))
	for i := range docs {
		docs[i] = store.Doc{Kind: nodeKind, Name: nodeDoc(n.ID, i)}
		if i < len(data) {
			docs[i].Data = data[i]
		}
		if i < len(n.docs) {
			docs[i].Version = n.docs[i]
		}
	}
	if len(docs) == 0 {
		return nil
	}
	versions, err := e.store.PutDocs(ctx, docs)
	if err != nil {
		return err
	}
	n.docs = versions[:len(data)]
	return nil
}

// readVersions reads which documents of this node the store has.
func (e *Engine) readVersions(ctx context.Context) error {
	n := e.node
	n.docs = nil
	for i := range nodeDocs {
		d, err := e.store.Doc(ctx, nodeKind, nodeDoc(n.ID, i))
		if errors.Is(err, gq.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		n.docs = append(n.docs, d.Version)
	}
	return nil
}

// nodeRecord is what a document of another node says.
type nodeRecord struct {
	announcement
	doc  store.Doc
	node string
}

// nodeDocuments reads the announcements of all other nodes.
func (e *Engine) nodeDocuments(ctx context.Context) ([]nodeRecord, error) {
	if !e.node.shared {
		return nil, nil
	}
	var out []nodeRecord
	for after := ""; ; {
		docs, err := e.store.Docs(ctx, nodeKind, after, store.MaxPage)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			after = d.Name
			f := nodeRecord{doc: d}
			f.node, _, _ = strings.Cut(d.Name, "/")
			if f.node == e.node.ID {
				continue
			}
			if json.Unmarshal(d.Data, &f.announcement) != nil {
				f.announcement = announcement{} // old, so that it is deleted
			}
			out = append(out, f)
		}
		if len(docs) < store.MaxPage {
			return out, nil
		}
	}
}

// forgetNodes deletes the announcements of nodes that have been silent for long.
func (e *Engine) forgetNodes(ctx context.Context) error {
	docs, err := e.nodeDocuments(ctx)
	if err != nil {
		return err
	}
	now := e.clock.now()
	var old []store.Doc
	for _, f := range docs {
		if now.Sub(f.Time) > nodeSilent && len(old) < store.MaxDocs {
			f.doc.Data = nil
			old = append(old, f.doc)
		}
	}
	if len(old) == 0 {
		return nil
	}
	if _, err := e.store.PutDocs(ctx, old); err != nil && !errors.Is(err, gq.ErrConflict) {
		return err // a conflict means that another node was faster, or that one of them is back
	}
	return nil
}

// others returns the nodes that announced themselves lately, and the workers of those whose
// announcement is fresh.
func (e *Engine) others(docs []nodeRecord) (nodes []gq.Node, workers []worker) {
	now := e.clock.now()
	for _, f := range docs {
		if f.doc.Name == f.node && now.Sub(f.Time) <= nodeListed {
			nodes = append(nodes, gq.Node{
				ID: f.node, Host: f.Host, PID: f.PID, Version: f.Version, Started: f.Started, LastSeen: f.Time, Workers: f.Count, Layout: f.Layout,
			})
		}
		if now.Sub(f.Time) > nodeFresh {
			continue
		}
		for _, w := range f.Workers {
			workers = append(workers, worker{gq.LiveWorker{
				Name: w.Name, Node: f.node, Version: w.Version, Queues: w.Queues, Types: w.Types, Offers: w.Offers, MaxCost: w.MaxCost,
				Waiting: w.Waiting, Running: w.Running, Leases: w.Leases, LastSeen: w.Seen,
			}, w.Streams, w.Stopped})
		}
	}
	return nodes, workers
}

// cluster returns the nodes of the store and their workers, the same on every node. It is the one
// source of everything that is told about workers.
func (e *Engine) cluster(ctx context.Context) ([]gq.Node, []gq.LiveWorker, error) {
	docs, err := e.nodeDocuments(ctx)
	if err != nil {
		return nil, nil, err
	}
	nodes, workers := e.others(docs)
	own := e.workers.list(e.node.ID, &e.clock)
	if e.node.running.Load() || !e.node.shared {
		self := e.node.Node
		self.Started = e.clock.at(self.Started)
		self.LastSeen, self.Workers = e.clock.at(time.Now()), e.countListed(own)
		nodes = append(nodes, self)
	}
	slices.SortFunc(nodes, func(a, b gq.Node) int { return strings.Compare(a.ID, b.ID) })
	merged := mergeWorkers(append(workers, own...))
	return nodes, slices.DeleteFunc(merged, func(w gq.LiveWorker) bool { return !e.listed(&w) }), nil
}

func (e *Engine) countListed(workers []worker) (n int) {
	for i := range workers {
		if !workers[i].stopped && e.listed(&workers[i].LiveWorker) {
			n++
		}
	}
	return n
}

// runNode announces the node until the context ends, and then deletes its announcement.
func (e *Engine) runNode(ctx context.Context) {
	n := e.node
	n.running.Store(true)
	defer n.running.Store(false)
	defer e.withdraw(context.WithoutCancel(ctx))
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := time.Now()
	var took time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.workers.news:
			// A burst of new workers must not keep the store busy with announcements.
			if soon := time.Now().Add(max(nodeSoon, 10*took)); soon.Before(next) {
				next = soon
				timer.Reset(time.Until(next))
			}
			continue
		case <-timer.C:
		}
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, nodeWithin)
		workers, err := e.announce(limited)
		cancel()
		took = time.Since(began)
		wait := nodeIdle
		if workers > 0 || err != nil {
			wait = nodeBusy
		}
		if err != nil && ctx.Err() == nil {
			e.log.Warn("could not announce this server to the others on its database", "error", err)
		}
		next = time.Now().Add(wait)
		timer.Reset(wait)
	}
}

// withdraw deletes the announcement of this node.
func (e *Engine) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, nodeWithin)
	defer cancel()
	err := e.putNode(ctx, nil)
	if errors.Is(err, gq.ErrConflict) {
		if err = e.readVersions(ctx); err == nil {
			err = e.putNode(ctx, nil)
		}
	}
	if err != nil && !errors.Is(err, gq.ErrClosed) {
		e.log.Warn("could not delete the announcement of this server", "error", err)
	}
}
