package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/faces/scheduler"
)

func newFacts(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "facts",
		Short: "Show what the scheduler API has recorded of jobs and leases",
		Long: "Show the three tables of facts of the scheduler API, oldest rows first: job runs, lease\nruns and events. --json prints the rows for programs.\n\n" +
			cli.ExitHelp,
		Example: `  gq facts jobs --addon visuals
  gq facts events --json`,
	}
	c.AddCommand(
		newFactsTable(p, "jobs", "job_runs", "Show a row for each job", true, (screen).jobRuns),
		newFactsTable(p, "leases", "lease_runs", "Show a row for each lease", true, (screen).leaseRuns),
		newFactsTable(p, "events", "events", "Show a row for each thing that happened", false, (screen).factEvents))
	return c
}

// newFactsTable makes a command that shows a page of a table. Its rows are of type T.
func newFactsTable[T any](p process, name, table, short string, byAddon bool, rows func(s screen, rows []T)) *cobra.Command {
	a, pages := &matchingAPI{process: p}, &pager{}
	addon := ""
	c := &cobra.Command{Use: name, Short: short, Example: "  gq facts " + name + " --limit 200 --json", Args: cli.NoArguments}
	a.flags(c)
	pages.flags(c, "rows", 50, 200)
	if byAddon {
		c.Flags().StringVar(&addon, "addon", "", "only of this addon (default all)")
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		q, err := pages.query()
		if err != nil {
			return err
		}
		if c.Flags().Changed("addon") {
			q.Set("addon_id", addon)
		}
		response, _, err := a.at(c.Context(), http.MethodGet, scheduler.Base+"/facts/"+table+"?"+q.Encode(), nil)
		if err != nil {
			return fmt.Errorf("facts: %w", err)
		}
		return show(a, response, func(s screen, v *map[string]json.RawMessage) {
			var list []T
			var next *string
			if json.Unmarshal((*v)[table], &list) != nil || json.Unmarshal((*v)["next_cursor"], &next) != nil {
				s.line("the server's answer cannot be read; --json prints it")
				return
			}
			rows(s, list)
			if next != nil {
				s.more(*next)
			}
		})
	}
	return c
}

// stamped formats the time of a row.
func stamped(t *time.Time) cell {
	if t == nil {
		return text("")
	}
	return text(t.UTC().Format(time.RFC3339))
}

func optional(s *string) cell {
	if s == nil {
		return text("")
	}
	return text(oneLine(*s, 60))
}

type jobRunRow struct {
	JobID      string     `json:"job_id"`
	AddonID    string     `json:"addon_id"`
	JobType    string     `json:"job_type"`
	Priority   string     `json:"priority"`
	CostUnits  int64      `json:"cost_units"`
	State      string     `json:"state"`
	Attempts   int        `json:"attempts"`
	CreatedAt  *time.Time `json:"created_at"`
	FinishedAt *time.Time `json:"finished_at"`
	ClaimedBy  *string    `json:"claimed_by"`
	ErrorText  *string    `json:"error_text"`
}

func (s screen) jobRuns(list []jobRunRow) {
	rows := make([][]cell, len(list))
	for i := range list {
		r := &list[i]
		rows[i] = []cell{
			text(r.JobID), text(r.AddonID), text(oneLine(r.JobType, 30)), text(r.State), number(r.CostUnits), number(r.Attempts), stamped(r.CreatedAt), stamped(r.FinishedAt), optional(r.ClaimedBy), optional(r.ErrorText),
		}
	}
	s.table([]string{"JOB", "ADDON", "TYPE", "STATE", "COST", "ATTEMPTS", "CREATED", "FINISHED", "WORKER", "ERROR"}, rows)
}

type leaseRunRow struct {
	LeaseID       string     `json:"lease_id"`
	JobID         string     `json:"job_id"`
	AddonID       string     `json:"addon_id"`
	CostUnits     int64      `json:"cost_units"`
	GrantedAt     *time.Time `json:"granted_at"`
	ReleasedAt    *time.Time `json:"released_at"`
	ExpiresAt     *time.Time `json:"expires_at"`
	State         string     `json:"state"`
	ReleaseStatus *string    `json:"release_status"`
}

func (s screen) leaseRuns(list []leaseRunRow) {
	rows := make([][]cell, len(list))
	for i := range list {
		r := &list[i]
		rows[i] = []cell{
			text(r.LeaseID), text(r.JobID), text(r.AddonID), number(r.CostUnits), text(r.State), stamped(r.GrantedAt), stamped(r.ReleasedAt), stamped(r.ExpiresAt), optional(r.ReleaseStatus),
		}
	}
	s.table([]string{"LEASE", "JOB", "ADDON", "COST", "STATE", "GRANTED", "RELEASED", "EXPIRES", "ENDED AS"}, rows)
}

type factEventRow struct {
	ID         uint64          `json:"id"`
	TS         *time.Time      `json:"ts"`
	EntityType string          `json:"entity_type"`
	EntityID   string          `json:"entity_id"`
	EventType  string          `json:"event_type"`
	Data       json.RawMessage `json:"data_json"`
}

func (s screen) factEvents(list []factEventRow) {
	rows := make([][]cell, len(list))
	for i := range list {
		r := &list[i]
		rows[i] = []cell{number(r.ID), stamped(r.TS), text(r.EventType), text(r.EntityType), text(r.EntityID), {oneLine(string(r.Data), 80), faint}}
	}
	s.table([]string{"ID", "TIME", "EVENT", "ENTITY", "ID OF IT", "DATA"}, rows)
}
