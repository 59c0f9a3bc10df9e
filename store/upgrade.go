package store

import (
	"context"
	"time"
)

// Upgradable is an optional capability: processes whose programs know neighbouring layouts of the
// tables may have the store open at the same time.
type Upgradable interface {
	// Layout returns the layout of the tables that this program knows.
	Layout() int

	// FinishUpgrade removes what only older programs need from the tables, unless a node that
	// knows an older layout has announced itself lately. It is called about once a minute and
	// does nothing, without reading, if nothing is left to do.
	FinishUpgrade(ctx context.Context) error
}

// Engines announce themselves in documents of this kind. A store reads [NodeLayout] of them.
const NodeKind = "node"

// NodeLive is how long a node counts as running after its last announcement.
const NodeLive = 90 * time.Second

// NodeLayout is the part of an announcement that a store reads before it changes its tables.
type NodeLayout struct {
	Time   time.Time `json:"time"` // by the store's clock
	Layout int       `json:"layout,omitzero"`
}
