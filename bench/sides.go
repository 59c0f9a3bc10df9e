package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// contender is a side with the place where it keeps its jobs.
type contender struct {
	side
	place   place
	prepare func(ctx context.Context) error // makes what it needs available; may be nil
}

// group is a set of sides that are measured with the same rows.
type group struct {
	name        string
	sides, rows []string
	extra       []string // sides that are measured only if named
	full, quick sizes
}

func (g group) all() []string { return slices.Concat(g.sides, g.extra) }

// onPostgreSQL are queues that share one PostgreSQL server.
var onPostgreSQL = group{
	name:  "postgres",
	sides: []string{"gopherqueue", "river", "graphile", "pgboss"},
	rows:  []string{"bulk", "single", "drain", "backlog", "latency", "idle", "pinned"},
	full: sizes{
		Drain: 200_000, Backlog: 1_000_000, Bulk: 200_000, Batch: 5000, Inserters: 2, Callers: 64, Single: 8,
		Latency: 1000, Rest: 8, Idle: 20, Calm: 40, Pinned: 180, Rate: 2000, Slots: 2000,
	},
	quick: sizes{
		Drain: 10_000, Backlog: 20_000, Bulk: 10_000, Batch: 1000, Inserters: 2, Callers: 64, Single: 1,
		Latency: 50, Rest: 3, Idle: 2, Calm: 1, Pinned: 2, Rate: 500, Slots: 2000,
	},
}

// servers are queues in this process or on servers of their own.
var servers = group{
	name:  "servers",
	sides: []string{"embedded", "batched", "server", "asynq-everysec", "asynq-always", "bullmq-everysec", "bullmq-always", "beanstalkd", "nats", "faktory"},
	extra: []string{"temporal"},
	rows:  []string{"single", "bulk", "drain", "cycle", "half"},
	full: sizes{
		Drain: 100_000, Bulk: 1_000_000, Batch: 1000, Inserters: 4, Callers: 64, Single: 2,
		BulkFor: 2, Fill: 2, DrainFor: 3, Cycle: 2.5, CycleBatch: 100, Feeders: 4, Window: 4000, Half: 2.5,
	},
	quick: sizes{
		Drain: 2000, Bulk: 4000, Batch: 500, Inserters: 4, Callers: 64, Single: 0.2,
		BulkFor: 0.2, Fill: 0.2, DrainFor: 1, Cycle: 0.3, CycleBatch: 100, Feeders: 4, Window: 4000, Half: 0.5,
	},
}

// named returns a side of either group.
func named(name string, size sizes, p programs) contender {
	needs := func(all ...func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			for _, prepare := range all {
				if err := prepare(ctx); err != nil {
					return err
				}
			}
			return nil
		}
	}
	node := func(ctx context.Context) error { return install(ctx, p.dir, p.progress) }
	build := func(module, pkg, program string) func(context.Context) error {
		return func(ctx context.Context) error { return p.build(ctx, module, pkg, program) }
	}
	switch name {
	case "gopherqueue":
		return contender{side: gopherQueue{size.Slots}}
	case "river":
		return contender{side: riverQueue{size.Slots}}
	case "graphile":
		return contender{side: nodeQueue{"graphile-worker", "graphile.mjs", p.dir, nodeRows}, prepare: node}
	case "pgboss":
		return contender{side: nodeQueue{"pg-boss", "pgboss.mjs", p.dir, nodeRows}, prepare: node}
	case "embedded":
		return contender{side: clientSide{"GopherQueue embedded", true, openEmbedded}, place: directory{}}
	case "batched":
		return contender{side: clientSide{"GopherQueue embedded, batched", true, openBatched}, place: directory{}}
	case "server":
		return contender{
			side: clientSide{"GopherQueue server", true, openServer}, place: serveGopherQueue(p),
			prepare: build("..", "./cmd/gq", "gq"),
		}
	case "asynq-everysec":
		return contender{side: clientSide{"Asynq, everysec", false, openAsynq}, place: serveRedis(p, "everysec"), prepare: p.redis}
	case "asynq-always":
		return contender{side: clientSide{"Asynq, always", false, openAsynq}, place: serveRedis(p, "always"), prepare: p.redis}
	case "bullmq-everysec":
		return contender{
			side: nodeQueue{"BullMQ, everysec", "bullmq.mjs", p.dir, bullRows}, place: serveRedis(p, "everysec"),
			prepare: needs(p.redis, node),
		}
	case "bullmq-always":
		return contender{
			side: nodeQueue{"BullMQ, always", "bullmq.mjs", p.dir, bullRows}, place: serveRedis(p, "always"),
			prepare: needs(p.redis, node),
		}
	case "beanstalkd":
		return contender{side: clientSide{"beanstalkd, fsync", false, openBeanstalkd}, place: serveBeanstalkd(p), prepare: p.beanstalkd}
	case "nats":
		return contender{
			side: clientSide{"NATS JetStream, sync always", true, openNATS}, place: serveNATS(p),
			prepare: build(".", "github.com/nats-io/nats-server/v2", "nats-server"),
		}
	case "faktory":
		return contender{
			side: clientSide{"Faktory", true, openFaktory}, place: serveFaktory(p),
			prepare: needs(p.redis, build(".", "github.com/contribsys/faktory/cmd/faktory", "faktory")),
		}
	case "temporal":
		return contender{
			side: clientSide{"Temporal dev server", false, openTemporal}, place: serveTemporal(p),
			prepare: func(ctx context.Context) error { return p.install(ctx, "temporal", temporalServer) },
		}
	}
	return contender{}
}

var (
	// nodeRows omits the claims under a pinned snapshot: neither of the two exposes its
	// claims.
	nodeRows = map[string]bool{"bulk": true, "single": true, "drain": true, "backlog": true, "latency": true, "idle": true}
	bullRows = map[string]bool{"bulk": true, "single": true, "drain": true, "cycle": true, "half": true}
)

// choose returns the sides of a list. Sides whose programs are missing are left out, with
// the reason.
func (g group) choose(ctx context.Context, list string, size sizes, p programs) (chosen []contender, without map[string]string, err error) {
	without = make(map[string]string)
	for _, name := range strings.Split(list, ",") {
		if !slices.Contains(g.all(), name) {
			return nil, nil, fmt.Errorf("-sides: %q is none of %s", name, strings.Join(g.all(), ", "))
		}
		c := named(name, size, p)
		if c.prepare != nil {
			if err := c.prepare(ctx); err != nil {
				fmt.Fprintf(p.progress, "without %s: %v\n", c.name(), err)
				without[c.name()] = err.Error()
				continue
			}
		}
		chosen = append(chosen, c)
	}
	if len(chosen) == 0 {
		return nil, nil, errors.New("no side is left to measure")
	}
	return chosen, without, nil
}
