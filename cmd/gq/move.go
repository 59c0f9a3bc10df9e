package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/internal/storeurl"
	"github.com/gopherqueue/gq/internal/transfer"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/server/config"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/postgres"
)

const moveHelp = `Everything goes along: jobs in every state with payloads, results, checkpoints,
leases and keys, dependencies, queues, pools, schedules, tokens, deliveries, and
all events with their numbers. Afterwards the destination is read and compared,
by the number of items of each kind and by checksums over them.`

func newBackup(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write everything in a store to a file",
		Long: `Write everything in a store to a file, compressed and with checksums.

` + moveHelp + `

The backup is written to FILE.partial and renamed once it is complete and has been
read back; the next run replaces a leftover. It contains payloads, so only its
owner may read it.

A server must not be using the directory; gq backup now lets it back up the directory
itself. It may be using the database: the backup is a snapshot, taken in one
transaction that stays open as long as the backup runs.`,
		Example: `  gq backup friday.gqb
  gq backup friday.gqb --store postgres://db.example/app`,
		Args: oneArgument("a file to write"),
	}
	m := newMover(p, c)
	where := m.storeFlag(c, "store to read")
	c.RunE = func(c *cobra.Command, args []string) error {
		return m.backup(c.Context(), *where, args[0])
	}
	c.AddCommand(newBackupNow(p))
	return c
}

func newRestore(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "restore FILE|DIR",
		Short: "Fill an empty store from a backup",
		Long: `Fill an empty store from a backup.

` + moveHelp + `

The file is checked first; a damaged or truncated one is refused. An interrupted
restore leaves a store that no server opens. Run the same command again to resume
it.

DIR is where a server took backups (gq backup now). The newest one is restored unless
--generation names another; the store must be file:.`,
		Example: `  gq restore friday.gqb --store file:/var/lib/gq
  gq restore friday.gqb --store postgres://db.example/app`,
		Args: oneArgument("a backup"),
	}
	m := newMover(p, c)
	where := m.storeFlag(c, "store to fill")
	generation := c.Flags().String("generation", "", "with DIR: which backup, the name of a file in DIR/generations without .json (default the newest)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if isDir(args[0]) {
			return m.restoreDir(c.Context(), args[0], *generation, *where)
		}
		if *generation != "" {
			return cli.Invalid("generation", args[0]+" is not a directory of backups")
		}
		return m.restore(c.Context(), args[0], *where)
	}
	return c
}

func newCopy(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "copy SRC DST",
		Short: "Copy everything from one store to another",
		Long: `Copy everything from one store to an empty one: from a directory to PostgreSQL,
back, or between two of a kind. SRC and DST are file:DIR or postgres://….

` + moveHelp + `

Stop the servers first. The command refuses a directory in use, and fails if a
database changed during the copy. Then start the servers on DST; workers keep the
leases they hold. SRC is not changed.

An interrupted copy leaves a DST that no server opens. Run the same command again
to resume it; SRC must not have changed.`,
		Example: `  gq copy file:gq-data postgres://db.example/app
  gq copy postgres://db.example/app file:gq-data`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%s takes a source and a destination, and %s given", c.CommandPath(), quantity.Of(len(args), "argument was", "arguments were"))
			}
			return nil
		},
	}
	m := newMover(p, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return m.copy(c.Context(), args[0], args[1])
	}
	return c
}

// mover is a command that copies stores.
type mover struct {
	process
	json bool
	bar  *bar
}

func newMover(p process, c *cobra.Command) *mover {
	m := &mover{process: p, bar: &bar{line: newProgress(p.stderr)}}
	c.Flags().BoolVar(&m.json, "json", false, "print JSON for programs")
	return m
}

func (m *mover) storeFlag(c *cobra.Command, use string) *string {
	return c.Flags().String("store", config.Default().Store, use+": file:DIR or postgres://…")
}

// movable is a store that can be exported and filled.
type movable interface {
	store.Store
	transfer.Destination
}

// openSource opens an existing store.
func openSource(ctx context.Context, field, url string) (movable, error) {
	u, err := parseMovable(field, url)
	if err != nil {
		return nil, err
	}
	var s movable
	there := false
	if u.Scheme == "file" {
		if there, err = local.Exists(u.Dir); there {
			s, err = local.Open(u.Dir, local.Options{})
		}
	} else {
		var layout postgres.Layout
		if layout, err = postgres.MigrateStatus(ctx, url); err == nil && layout.Version > 0 {
			there = true
			s, err = postgres.Open(ctx, url, store.Config{})
		}
	}
	if err == nil && !there {
		err = fmt.Errorf("there is no store: %w", gq.ErrNotFound)
	}
	return opened(s, url, err)
}

// openDestination opens a store, possibly unfinished, or creates one.
func openDestination(ctx context.Context, field, url string) (movable, error) {
	u, err := parseMovable(field, url)
	if err != nil {
		return nil, err
	}
	var s movable
	unfinished := store.Config{Unfinished: true}
	if u.Scheme == "file" {
		s, err = local.Open(u.Dir, local.Options{Config: unfinished})
	} else {
		s, err = postgres.Open(ctx, url, unfinished)
	}
	return opened(s, url, err)
}

func opened(s movable, url string, err error) (movable, error) {
	if err == nil {
		return s, nil
	}
	if errors.Is(err, gq.ErrInUse) {
		err = fmt.Errorf("%w; stop its server first", err)
	}
	return nil, fmt.Errorf("%s: %w", config.Redact(url), err)
}

func parseMovable(field, url string) (storeurl.URL, error) {
	u, err := storeurl.Parse(url)
	switch {
	case err != nil:
		return u, cli.Invalid(field, errs.FaultsOf(err)[0].Problem)
	case u.Scheme == "memory":
		return u, cli.Invalid(field, "memory: ends with its process; want file:DIR or postgres://…")
	}
	return u, nil
}

func (m *mover) backup(ctx context.Context, url, path string) (err error) {
	s, err := openSource(ctx, "store", url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	from, err := m.export(ctx, s, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := transfer.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	return m.run(ctx, "backed up", config.Redact(url), path, from, to, nil)
}

func (m *mover) restore(ctx context.Context, path, url string) (err error) {
	if _, err := parseMovable("store", url); err != nil {
		return err
	}
	from, err := transfer.OpenFile(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	err = from.Check(ctx, func(read, size int64) { m.bar.show("checking", read, size, "bytes") })
	m.bar.line.clear()
	if err != nil {
		return err
	}
	s, err := openDestination(ctx, "store", url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return m.run(ctx, "restored", path, config.Redact(url), from, s, nil)
}

func (m *mover) copy(ctx context.Context, src, dst string) (err error) {
	if _, err := parseMovable("DST", dst); err != nil {
		return err
	}
	from, err := openSource(ctx, "SRC", src)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	x, err := m.export(ctx, from, src)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	to, err := openDestination(ctx, "DST", dst)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	return m.run(ctx, "copied", config.Redact(src), config.Redact(dst), x, to, func(ctx context.Context) error {
		return unchanged(ctx, from, x.Head(), config.Redact(src))
	})
}

// unchanged checks that a source has not changed since it was read.
func unchanged(ctx context.Context, s store.Exporter, was store.Head, name string) error {
	now, err := s.Export(ctx)
	if err != nil {
		return err
	}
	if now.Head().Origin != was.Origin {
		err = fmt.Errorf("%s has changed while it was copied: stop its servers, empty the destination and begin again: %w", name, gq.ErrConflict)
	}
	return errors.Join(err, now.Close())
}

// moved is the final output.
type moved struct {
	From      string           `json:"from"`
	To        string           `json:"to"`
	Resumed   bool             `json:"resumed"`
	Verified  bool             `json:"verified"`
	LastEvent uint64           `json:"last_event"`
	Seconds   float64          `json:"seconds"`
	Kinds     []transfer.Named `json:"kinds"`
}

func (m *mover) run(ctx context.Context, done, source, target string, from store.Export, to transfer.Destination, unchanged func(context.Context) error) error {
	report, err := transfer.Copy(ctx, from, to, transfer.Options{Progress: m.bar.progress, Unchanged: unchanged})
	m.bar.line.clear()
	if err != nil {
		return fmt.Errorf("%s to %s: %w", source, target, err)
	}
	out := moved{source, target, report.Resumed, true, report.LastEvent, report.Elapsed.Seconds(), report.Sums.Named()}
	if m.json {
		return wire.EncodeJSON(m.stdout, out)
	}
	rows := make([][]cell, 0, len(out.Kinds))
	for _, k := range out.Kinds {
		rows = append(rows, []cell{text(k.Name), number(k.Count), text(k.Checksum), text("equal")})
	}
	s := newScreen(m.stdout, m.getenv)
	s.table([]string{"KIND", "COUNT", "CHECKSUM", "DESTINATION"}, rows)
	resumed := ""
	if out.Resumed {
		resumed = ", begun by an earlier run"
	}
	s.line("%s %s to %s and verified in %s%s", done, source, target, roundly(report.Elapsed), resumed)
	return nil
}

// bar shows progress.
type bar struct {
	line progress
	last time.Time // when it was last drawn
}

const (
	barWidth = 30
	barEvery = 100 * time.Millisecond
)

func (b *bar) progress(p transfer.Progress) {
	what := "copying"
	if p.Verifying {
		what = "verifying"
	}
	b.show(what, p.Done, p.Total, "jobs and events")
}

func (b *bar) show(what string, done, total int64, of string) {
	if now := time.Now(); now.Sub(b.last) >= barEvery {
		b.last = now
		b.line.show("%s", drawBar(what, done, total, of))
	}
}

func drawBar(what string, done, total int64, of string) string {
	part := 1.0
	if total > 0 {
		part = min(1, float64(done)/float64(total))
	}
	full := int(part * barWidth)
	return fmt.Sprintf("%-9s [%s%s] %3d %%  %d of %d %s", what,
		strings.Repeat("#", full), strings.Repeat(".", barWidth-full), int(part*100), done, total, of)
}
