package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/match"
)

func newProvider(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "provider",
		Short: "Show, register and remove providers of matching",
		Long:  "Show, register and remove providers of matching. gq provide acts as one.\n\n" + cli.ExitHelp,
		Example: `  gq provider register gpu-7 --capability AI --model llama --stake 5000
  gq provider list
  gq provider status gpu-7 RETIRED --reason sold
  gq provider remove gpu-7`,
	}
	c.AddCommand(newProviderList(p), newProviderShow(p), newProviderRegister(p), newProviderStatus(p), newProviderLeases(p), newProviderRemove(p))
	return c
}

// shownProvider is a provider as the server encodes it.
type shownProvider struct {
	ID            string          `json:"id"`
	Status        string          `json:"status"`
	Reason        string          `json:"reason"`
	Capabilities  []string        `json:"capabilities"`
	Models        []string        `json:"models"`
	Precisions    []string        `json:"precisions"`
	Gates         []string        `json:"gates"`
	MaxDepth      int64           `json:"max_depth"`
	MaxWidth      int64           `json:"max_width"`
	Region        string          `json:"region"`
	Allow         []string        `json:"allow"`
	Deny          []string        `json:"deny"`
	Stake         int64           `json:"stake"`
	AttestedUntil int64           `json:"attestation_expires_at"`
	Health        int64           `json:"health_ppb"`
	Heartbeat     int64           `json:"last_heartbeat_at"`
	Cooldown      match.Cooldowns `json:"cooldown_until"`
	Leases        int64           `json:"leases_active"`
	AIUnits       int64           `json:"ai_units_used"`
	QuantumUnits  int64           `json:"quantum_units_used"`
	Fails         int64           `json:"fails_in_a_row"`
	Findings      int64           `json:"invalid_proofs"`
	Slashed       int64           `json:"slashed"`
	Eligible      bool            `json:"eligible"`
	RegisteredAt  int64           `json:"registered_at"`
}

func (p *shownProvider) health() string { return fmt.Sprintf("%.1f%%", float64(p.Health)/1e7) }

// unixTime formats a Unix time; 0 is none, and the largest is never.
func unixTime(secs int64) string {
	switch {
	case secs == 0:
		return ""
	case secs >= match.MaxTime:
		return "never"
	default:
		return instant(time.Unix(secs, 0))
	}
}

var providerStatusColours = map[string]string{"ACTIVE": green, "RETIRED": faint, "JAILED": red, "SUSPENDED": yellow}

func newProviderList(p process) *cobra.Command {
	a, pages := &matchingAPI{process: p}, &pager{}
	c := &cobra.Command{Use: "list", Short: "List providers by id", Example: "  gq provider list --json", Args: cli.NoArguments}
	a.flags(c)
	pages.flags(c, "providers", 100, 1000)
	c.RunE = func(c *cobra.Command, _ []string) error {
		q, err := pages.query()
		if err != nil {
			return err
		}
		response, _, err := a.call(c.Context(), http.MethodGet, "/providers?"+q.Encode(), nil)
		if err != nil {
			return fmt.Errorf("list providers: %w", err)
		}
		type page struct {
			Providers []shownProvider `json:"providers"`
			Next      string          `json:"next_cursor"`
		}
		return show(a, response, func(s screen, v *page) {
			rows := make([][]cell, len(v.Providers))
			for i := range v.Providers {
				p := &v.Providers[i]
				rows[i] = []cell{
					text(clean(p.ID)), {p.Status, providerStatusColours[p.Status]}, text(yes(p.Eligible)), text(strings.Join(p.Capabilities, ",")),
					text(clean(p.Region)), number(p.Leases), text(p.health()), number(p.Stake), text(ago(time.Unix(p.Heartbeat, 0))),
				}
			}
			s.table([]string{"PROVIDER", "STATUS", "ELIGIBLE", "KINDS", "REGION", "LEASES", "HEALTH", "STAKE", "HEARTBEAT"}, rows)
			s.more(v.Next)
		})
	}
	return c
}

// showProvider prints one provider.
func (a *matchingAPI) showProvider(response []byte) error {
	return show(a, response, func(s screen, p *shownProvider) {
		list := func(l []string) string { return clean(strings.Join(l, ", ")) }
		some := func(n int64) string {
			if n == 0 {
				return ""
			}
			return fmt.Sprint(n)
		}
		s.pairs([][2]string{
			{"provider", clean(p.ID)}, {"status", p.Status}, {"reason", clean(p.Reason)}, {"eligible", yes(p.Eligible)},
			{"kinds", list(p.Capabilities)}, {"models", list(p.Models)}, {"precisions", list(p.Precisions)}, {"gates", list(p.Gates)},
			{"max depth", some(p.MaxDepth)}, {"max width", some(p.MaxWidth)}, {"region", clean(p.Region)}, {"allow", list(p.Allow)}, {"deny", list(p.Deny)},
			{"stake", fmt.Sprint(p.Stake)}, {"slashed", some(p.Slashed)}, {"attested until", unixTime(p.AttestedUntil)},
			{"health", p.health()}, {"heartbeat", unixTime(p.Heartbeat)}, {"leases", fmt.Sprint(p.Leases)},
			{"AI units", some(p.AIUnits)}, {"quantum units", some(p.QuantumUnits)}, {"AI pause until", unixTime(p.Cooldown.AI)}, {"quantum pause until", unixTime(p.Cooldown.Quantum)},
			{"failures in a row", some(p.Fails)}, {"invalid proofs", some(p.Findings)}, {"registered", unixTime(p.RegisteredAt)},
		}...)
	})
}

func newProviderShow(p process) *cobra.Command {
	a := &matchingAPI{process: p}
	c := &cobra.Command{Use: "show ID", Short: "Show a provider", Example: "  gq provider show gpu-7", Args: oneArgument("the id of a provider")}
	a.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		response, _, err := a.call(c.Context(), http.MethodGet, "/providers/"+url.PathEscape(args[0]), nil)
		if err != nil {
			return err
		}
		return a.showProvider(response)
	}
	return c
}

const providerRegisterLong = `Register a provider, or replace what is known of it. Both count as a heartbeat.

What is not given is empty: a provider without --model can run no job that names
a model. A provider without --attested-for is attested for a year. With --file the
provider is read from a file, or from standard input with -, as
POST /api/matching/providers takes it.`

func newProviderRegister(p process) *cobra.Command {
	a := &matchingAPI{process: p}
	var file string
	var made struct {
		ID            string   `json:"id"`
		Capabilities  []string `json:"capabilities,omitempty"`
		Models        []string `json:"models,omitempty"`
		Precisions    []string `json:"precisions,omitempty"`
		Gates         []string `json:"gates,omitempty"`
		MaxDepth      int64    `json:"max_depth,omitempty"`
		MaxWidth      int64    `json:"max_width,omitempty"`
		Region        string   `json:"region,omitempty"`
		Allow         []string `json:"allow,omitempty"`
		Deny          []string `json:"deny,omitempty"`
		Stake         int64    `json:"stake,omitempty"`
		AttestedUntil int64    `json:"attestation_expires_at"`
	}
	var attested time.Duration
	c := &cobra.Command{
		Use: "register (ID | --file FILE)", Short: "Register a provider, or replace what is known of it", Long: providerRegisterLong,
		Example: `  gq provider register gpu-7 --capability AI --model llama --model mistral --region eu --stake 5000
  gq provider register --file provider.json`,
		Args: func(c *cobra.Command, args []string) error {
			if file == "" && len(args) != 1 || file != "" && len(args) != 0 {
				return fmt.Errorf("%s takes the id of one provider, or --file", c.CommandPath())
			}
			return nil
		},
	}
	a.flags(c)
	f := c.Flags()
	f.StringVar(&file, "file", "", "read the provider as JSON from a file, or from standard input with -")
	f.StringSliceVar(&made.Capabilities, "capability", nil, "kind of jobs it takes: AI or QUANTUM; may be repeated")
	f.StringSliceVar(&made.Models, "model", nil, "model it has; may be repeated")
	f.StringSliceVar(&made.Precisions, "precision", nil, "precision it has; may be repeated")
	f.StringSliceVar(&made.Gates, "gate", nil, "quantum gate it has; may be repeated")
	f.Int64Var(&made.MaxDepth, "max-depth", 0, "deepest circuit it runs")
	f.Int64Var(&made.MaxWidth, "max-width", 0, "widest circuit it runs")
	f.StringVar(&made.Region, "region", "", "where it is")
	f.StringSliceVar(&made.Allow, "allow", nil, "requester it works for; may be repeated (default all)")
	f.StringSliceVar(&made.Deny, "deny", nil, "requester it does not work for; may be repeated")
	f.Int64Var(&made.Stake, "stake", 0, "its stake")
	f.DurationVar(&attested, "attested-for", 365*24*time.Hour, "how long its attestation is valid from now")
	c.RunE = func(c *cobra.Command, args []string) error {
		var body any = &made
		if file != "" {
			text, err := readInput(p, file)
			if err != nil {
				return fmt.Errorf("register a provider: %w", err)
			}
			if !json.Valid(text) {
				return cli.Invalid("file", fmt.Sprintf("%.200q is not JSON", file))
			}
			body = json.RawMessage(text)
		} else {
			made.ID, made.AttestedUntil = args[0], time.Now().Add(attested).Unix()
		}
		response, _, err := a.call(c.Context(), http.MethodPost, "/providers", body)
		if err != nil {
			return fmt.Errorf("register a provider: %w", err)
		}
		return a.showProvider(response)
	}
	return c
}

func newProviderStatus(p process) *cobra.Command {
	a := &matchingAPI{process: p}
	var reason string
	c := &cobra.Command{
		Use: "status ID STATUS", Short: "Change the status of a provider; one that is not ACTIVE loses its leases",
		Long: "Change the status of a provider to ACTIVE, JAILED, SUSPENDED or RETIRED. One that is no\nlonger ACTIVE loses its leases, and their jobs are queued again. RETIRED is final.",
		Example: `  gq provider status gpu-7 SUSPENDED --reason maintenance
  gq provider status gpu-7 ACTIVE`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%s takes a provider and a status, and %s given", c.CommandPath(), quantity.Of(len(args), "argument was", "arguments were"))
			}
			return nil
		},
	}
	a.flags(c)
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	c.RunE = func(c *cobra.Command, args []string) error {
		status := strings.ToUpper(args[1])
		if _, err := match.ParseStatus(status); err != nil {
			return cli.Invalid("status", fmt.Sprintf("%.64q is not one of %v", args[1], match.Statuses()))
		}
		response, _, err := a.call(c.Context(), http.MethodPost, "/providers/"+url.PathEscape(args[0])+"/status", map[string]any{"status": status, "reason": reason})
		if err != nil {
			return err
		}
		return a.showProvider(response)
	}
	return c
}

func newProviderLeases(p process) *cobra.Command {
	a, pages := &matchingAPI{process: p}, &pager{}
	c := &cobra.Command{
		Use: "leases [ID]", Short: "List the active leases of a provider, or of all", Example: "  gq provider leases gpu-7",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%s takes one provider, and %d were given", c.CommandPath(), len(args))
			}
			return nil
		},
	}
	a.flags(c)
	pages.flags(c, "leases", 100, 1000)
	c.RunE = func(c *cobra.Command, args []string) error {
		q, err := pages.query()
		if err != nil {
			return err
		}
		if len(args) > 0 {
			q.Set("provider_id", args[0])
		}
		response, _, err := a.call(c.Context(), http.MethodGet, "/leases?"+q.Encode(), nil)
		if err != nil {
			return fmt.Errorf("list leases: %w", err)
		}
		type page struct {
			Leases []struct {
				ID       string `json:"lease_id"`
				Job      string `json:"job_id"`
				Provider string `json:"provider_id"`
				Kind     string `json:"kind"`
				Attempt  int64  `json:"attempt"`
				Status   string `json:"status"`
				Acked    bool   `json:"acked"`
				Deadline int64  `json:"t_deadline"`
			} `json:"leases"`
			Next string `json:"next_cursor"`
		}
		return show(a, response, func(s screen, v *page) {
			rows := make([][]cell, len(v.Leases))
			for i, l := range v.Leases {
				rows[i] = []cell{
					text(l.ID), text(l.Job), text(clean(l.Provider)), text(l.Kind), number(l.Attempt), text(l.Status), text(yes(l.Acked)), text(ago(time.Unix(l.Deadline, 0))),
				}
			}
			s.table([]string{"LEASE", "JOB", "PROVIDER", "KIND", "ATTEMPT", "STATUS", "STARTED", "DEADLINE"}, rows)
			s.more(v.Next)
		})
	}
	return c
}

const providerRemoveLong = `Remove providers that are RETIRED; gq provider status retires one. What they did
stays in the records of rounds and in the history of jobs. An id can be registered
again, as a new provider.`

func newProviderRemove(p process) *cobra.Command {
	a := &matchingAPI{process: p}
	all := false
	c := &cobra.Command{
		Use: "remove (ID... | --retired)", Short: "Remove retired providers", Long: providerRemoveLong,
		Example: `  gq provider remove gpu-7
  gq provider remove --retired`,
		Args: func(c *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return fmt.Errorf("%s takes ids of providers, or --retired", c.CommandPath())
			}
			return nil
		},
	}
	a.flags(c)
	c.Flags().BoolVar(&all, "retired", false, "remove every retired provider")
	c.RunE = func(c *cobra.Command, args []string) error {
		if all {
			var err error
			if args, err = a.retired(c.Context()); err != nil {
				return fmt.Errorf("list providers: %w", err)
			}
		}
		removed := []string{}
		for _, id := range args {
			if _, _, err := a.call(c.Context(), http.MethodDelete, "/providers/"+url.PathEscape(id), nil); err != nil {
				return err
			}
			removed = append(removed, id)
		}
		response, err := json.Marshal(map[string]any{"removed": removed})
		if err != nil {
			return err
		}
		return show(a, response, func(s screen, _ *struct{}) { s.line("%d removed", len(removed)) })
	}
	return c
}

// retired lists the ids of all retired providers.
func (a *matchingAPI) retired(ctx context.Context) (ids []string, err error) {
	for cursor, more := "", true; more; more = cursor != "" {
		response, _, err := a.call(ctx, http.MethodGet, "/providers?limit=1000&cursor="+url.QueryEscape(cursor), nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Providers []shownProvider `json:"providers"`
			Next      string          `json:"next_cursor"`
		}
		if err := json.Unmarshal(response, &page); err != nil {
			return nil, err
		}
		for _, p := range page.Providers {
			if p.Status == match.Retired.String() {
				ids = append(ids, p.ID)
			}
		}
		cursor = page.Next
	}
	return slices.Clip(ids), nil
}
