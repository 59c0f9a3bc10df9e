package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/wire"
)

func newAudit(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "audit", Short: "Show who changed what", Args: cli.NoArguments,
		Long: `Show the changes that operators made, newest first: with which token, through which
API, to what and with what outcome. It needs admin on all queues. Entries are kept
for 90 days, 100,000 at most.

` + cli.ExitHelp,
		Example: "  gq audit --since 24h\n  gq audit --by ops --verb pause --json",
	}
	r := newRemote(p, c)
	var since, until, by, verb, cursor string
	var limit int
	c.Flags().StringVar(&since, "since", "", "since: a time, or a duration before now, such as 2h")
	c.Flags().StringVar(&until, "until", "", "before: as --since")
	c.Flags().StringVar(&by, "by", "", "only of the token with this name or id")
	c.Flags().StringVar(&verb, "verb", "", "only this action, such as pause")
	c.Flags().IntVar(&limit, "limit", 50, "entries on the page, up to 1000")
	c.Flags().StringVar(&cursor, "cursor", "", "next_cursor of the previous page")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if limit < 1 || limit > 1000 {
			return cli.Invalid("limit", fmt.Sprintf("%d is not between 1 and 1000", limit))
		}
		request := &pb.ListAuditRequest{By: by, Verb: verb, Cursor: cursor, Limit: int64(limit)}
		for _, bound := range []struct {
			field, text string
			to          **timestamppb.Timestamp
		}{{"since", since, &request.Since}, {"until", until, &request.Until}} {
			if bound.text == "" {
				continue
			}
			at, err := readInstant(bound.text)
			if err != nil {
				return cli.Invalid(bound.field, err.Error())
			}
			*bound.to = timestamppb.New(at)
		}
		return r.administer(c.Context(), func(ctx context.Context, a pb.AdminServiceClient) error {
			answer, err := a.ListAudit(ctx, request)
			if err != nil {
				return err
			}
			out := wire.Audit{Entries: make([]wire.AuditEntry, len(answer.GetEntries())), NextCursor: answer.GetNextCursor()}
			rows := make([][]cell, len(out.Entries))
			for i, e := range answer.GetEntries() {
				out.Entries[i] = wire.AuditEntry{
					At: e.GetAt().AsTime(), By: e.GetBy(), TokenID: e.GetTokenId(), Face: e.GetFace(), From: e.GetFrom(), Verb: e.GetVerb(),
					Object: e.GetObject(), Count: e.GetCount(), Detail: e.GetDetail(), Outcome: e.GetOutcome(),
				}
				what := e.GetObject()
				if e.GetCount() > 0 {
					what += fmt.Sprintf(" (%d)", e.GetCount())
				}
				rows[i] = []cell{
					text(e.GetAt().AsTime().UTC().Format(time.RFC3339)), text(clean(e.GetBy())), text(e.GetFace()), text(e.GetVerb()),
					text(clean(what)), text(clean(e.GetDetail())), text(e.GetOutcome()),
				}
			}
			return r.print(out, func(s screen) {
				s.table([]string{"TIME", "BY", "THROUGH", "ACTION", "WHAT", "DETAIL", "OUTCOME"}, rows)
				if out.NextCursor != "" {
					s.line("more with --cursor %s", out.NextCursor)
				}
			})
		})
	}
	return c
}
