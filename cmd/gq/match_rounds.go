package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/quantity"
)

func newMatchRounds(p process) *cobra.Command {
	a, pages := &matchingAPI{process: p}, &pager{}
	c := &cobra.Command{
		Use: "rounds", Short: "List the recorded rounds of a server, newest first",
		Long:    "List the rounds that assigned something, newest first. gq match replay computes one again.",
		Example: "  gq match rounds --limit 5", Args: cli.NoArguments,
	}
	a.flags(c)
	pages.flags(c, "rounds", 20, 100)
	c.RunE = func(c *cobra.Command, _ []string) error {
		q, err := pages.query()
		if err != nil {
			return err
		}
		response, _, err := a.call(c.Context(), http.MethodGet, "/rounds?"+q.Encode(), nil)
		if err != nil {
			return fmt.Errorf("list rounds: %w", err)
		}
		type page struct {
			Rounds []struct {
				Round       uint64 `json:"round"`
				Now         int64  `json:"now"`
				Seed        string `json:"seed"`
				Jobs        int    `json:"jobs"`
				Assignments int    `json:"assignments"`
				Requeued    int    `json:"requeued"`
				SetAside    int    `json:"set_aside"`
			} `json:"rounds"`
			Next string `json:"next_cursor"`
		}
		return show(a, response, func(s screen, v *page) {
			rows := make([][]cell, len(v.Rounds))
			for i, r := range v.Rounds {
				rows[i] = []cell{
					number(r.Round), text(time.Unix(r.Now, 0).UTC().Format(time.RFC3339)), number(r.Jobs), number(r.Assignments), number(r.Requeued), number(r.SetAside), {oneLine(r.Seed, 17), faint},
				}
			}
			s.table([]string{"ROUND", "TIME", "JOBS", "ASSIGNED", "REQUEUED", "SET ASIDE", "SEED"}, rows)
			s.more(v.Next)
		})
	}
	return c
}

const matchCancelLong = `Cancel a job of matching, a lease, or the leases of a round.

A job ends CANCELLED, and the lease that holds it ends at once. The job of a
cancelled lease is queued again as the same attempt, and its provider is not at
fault. Cancelling a round cancels those of its leases that have not ended.`

func newMatchCancel(p process) *cobra.Command {
	a := &matchingAPI{process: p}
	var job, lease, reason string
	var round uint64
	c := &cobra.Command{
		Use: "cancel (--job ID | --lease ID | --round N)", Short: "Cancel a job, a lease or the leases of a round", Long: matchCancelLong,
		Example: `  gq match cancel --job 7c9e6679-7425-40de-944b-e07fc1f90ae7
  gq match cancel --round 17 --reason "wrong policy"`, Args: cli.NoArguments,
	}
	a.flags(c)
	c.Flags().StringVar(&job, "job", "", "id of the job to cancel")
	c.Flags().StringVar(&lease, "lease", "", "id of the lease to cancel")
	c.Flags().Uint64Var(&round, "round", 0, "number of the round to cancel")
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	c.MarkFlagsMutuallyExclusive("job", "lease", "round")
	c.MarkFlagsOneRequired("job", "lease", "round")
	c.RunE = func(c *cobra.Command, _ []string) error {
		what, path := "job "+job, "/jobs/"+url.PathEscape(job)
		switch {
		case lease != "":
			what, path = "lease "+lease, "/leases/"+url.PathEscape(lease)
		case job == "":
			what, path = "round "+strconv.FormatUint(round, 10), "/rounds/"+strconv.FormatUint(round, 10)
		default:
			if _, err := jobArg(job); err != nil {
				return err
			}
		}
		response, _, err := a.call(c.Context(), http.MethodPost, path+"/cancel", map[string]any{"reason": reason})
		if err != nil {
			return fmt.Errorf("cancel %s: %w", what, err)
		}
		type cancelled struct {
			Leases []gq.LeaseID `json:"cancelled"`
			Before int          `json:"ended_before"`
		}
		return show(a, response, func(s screen, v *cancelled) {
			if job == "" && lease == "" {
				s.line("%s cancelled, %d had ended before", quantity.Of(len(v.Leases), "lease"), v.Before)
				return
			}
			s.line("%s CANCELLED", what)
		})
	}
	return c
}
