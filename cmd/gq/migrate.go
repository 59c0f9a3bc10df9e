package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/storeurl"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/server/config"
	"github.com/gopherqueue/gq/store/postgres"
)

func newMigrate(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the tables of a PostgreSQL store up to date",
		Long: `Bring the tables of a PostgreSQL store up to date.

A server does this when it starts. Use the command to do it earlier, as another
role, or with another tool. All tables are in one schema: gq, or the one that the
URL names (?gq_schema=NAME). Two more, gq_matching and gq_scheduler, have views for
people who query with SQL. Tables are migrated in one transaction and views in a
second one: if that fails, the tables stay migrated. Any number of processes may
migrate at once. Servers of the version before go on working on a migrated database;
older ones must be stopped first. The command refuses a database that a version has
migrated which is too new for this program.`,
		Example: `  gq migrate status --store postgres://db.example/app
  gq migrate up --store postgres://db.example/app
  gq migrate dump > schema.sql`,
	}
	c.AddCommand(newMigrateUp(p), newMigrateStatus(p), newMigrateDump(p))
	return c
}

// migrationReport is the JSON output of a migration.
type migrationReport struct {
	Version int    `json:"version"`           // layout of the database; 0 if it has no tables
	Before  *int   `json:"before,omitempty"`  // for up: the previous layout
	Current *int   `json:"current,omitempty"` // for status: the newest layout that this program knows, and migrates to
	Oldest  *int   `json:"oldest,omitempty"`  // for status: programs must know this layout or a later one
	Status  string `json:"status,omitempty"`  // for status: up_to_date, pending, newer or too_new
}

// migrationStatus returns what a program can do with the tables, in a word for programs and in words
// for people, and the exit status.
func migrationStatus(l postgres.Layout) (status, text string, exit int) {
	switch {
	case l.Current < l.Oldest:
		return "too_new", fmt.Sprintf("too new; this program cannot use them, install one that knows layout %d", l.Oldest), cli.ExitConflict
	case l.Pending():
		return "pending", "to be migrated, by gq migrate up or the next start of a server", cli.ExitFailure
	case l.Version > l.Current:
		return "newer", "migrated by a newer version; this program can use them", 0
	default:
		return "up_to_date", "up to date", 0
	}
}

// migrateStore adds the flag for the database, and returns a function that reads it.
func migrateStore(c *cobra.Command) func() (string, error) {
	text := c.Flags().String("store", "", "store to work on: postgres://…")
	return func() (string, error) {
		u, err := storeurl.Parse(*text)
		if err == nil && (u.Scheme == "memory" || u.Scheme == "file") {
			err = &gq.InvalidError{Faults: []gq.Fault{{Field: "store", Problem: fmt.Sprintf("%q has no tables; want postgres://…", *text)}}}
		}
		return *text, err
	}
}

func newMigrateUp(p process) *cobra.Command {
	c := &cobra.Command{
		Use:     "up",
		Short:   "Apply missing migrations",
		Long:    "Apply missing migrations and print them.",
		Example: "  gq migrate up --store postgres://db.example/app",
		Args:    cli.NoArguments,
	}
	where := migrateStore(c)
	inJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		url, err := where()
		if err != nil {
			return err
		}
		before, err := postgres.MigrateUp(c.Context(), url)
		if err != nil {
			return fmt.Errorf("%s: %w", config.Redact(url), err)
		}
		if *inJSON {
			return wire.EncodeJSON(p.stdout, migrationReport{Version: max(before.Version, before.Current), Before: &before.Version})
		}
		switch {
		case !before.Pending():
			_, err = fmt.Fprintf(p.stdout, "schema version %d is up to date\n", before.Version)
			return err
		case before.Version == before.Current:
			_, err = fmt.Fprintf(p.stdout, "schema version %d is up to date, and has the views of this program now\n", before.Version)
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "schema version %d, before %d\n", before.Current, before.Version)
		return err
	}
	return c
}

func newMigrateStatus(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the schema version of a database",
		Long: `Show the layout of the tables of a database, the newest one this program knows, and the
oldest one that a program must know to use the tables. Nothing is changed.

Exit status: 0 if this program can use the tables as they are, 1 if they are to be
migrated, 5 if they are too new for this program.`,
		Example: "  gq migrate status --store postgres://db.example/app",
		Args:    cli.NoArguments,
	}
	where := migrateStore(c)
	inJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		url, err := where()
		if err != nil {
			return err
		}
		l, err := postgres.MigrateStatus(c.Context(), url)
		if err != nil && l.Current >= l.Oldest {
			return fmt.Errorf("%s: %w", config.Redact(url), err)
		}
		status, text, exit := migrationStatus(l)
		if *inJSON {
			err = wire.EncodeJSON(p.stdout, migrationReport{Version: l.Version, Current: &l.Current, Oldest: &l.Oldest, Status: status})
		} else {
			_, err = fmt.Fprintf(p.stdout, "the tables have layout %d, programs must know layout %d; this program knows %d: %s\n", l.Version, l.Oldest, l.Current, text)
		}
		if err == nil && exit != 0 {
			err = &cli.StatusError{Status: exit}
		}
		return err
	}
	return c
}

func newMigrateDump(p process) *cobra.Command {
	c := &cobra.Command{
		Use:     "dump",
		Short:   "Print the SQL that creates the tables",
		Long:    "Print the SQL that creates the tables in an empty database, to apply it with other\ntools.",
		Example: "  gq migrate dump > schema.sql\n  gq migrate dump --schema billing > schema.sql",
		Args:    cli.NoArguments,
	}
	schema := c.Flags().String("schema", postgres.DefaultSchema, "schema of the tables")
	c.RunE = func(*cobra.Command, []string) error {
		sql, err := postgres.MigrateDump(*schema)
		if err == nil {
			_, err = io.WriteString(p.stdout, sql)
		}
		return err
	}
	return c
}
