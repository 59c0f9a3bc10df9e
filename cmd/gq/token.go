package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/storeurl"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/server"
	"github.com/gopherqueue/gq/server/config"
)

func newToken(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Create, list and revoke access tokens",
		Long: `Create, list and revoke the tokens with which callers authenticate.

A grant is SCOPES@QUEUES. The scopes are submit, work, observe, read and
admin, which includes the others; observe is read without the content of jobs. In queue patterns * matches any characters; without @QUEUES a
grant is for all queues. As soon as a token exists, the server requires one from
every caller. Commands send the token in GQ_TOKEN.

With --store the command changes the tokens of a store that no server is using.

` + cli.ExitHelp,
		Example: `  gq token create ops --grant admin --store file:gq-data
  gq token create mailer --grant 'submit,read@mail.*' --expires 2160h
  gq token create worker-7 --grant 'work@mail.*' --rate 100
  gq token list
  gq token revoke mailer --yes`,
	}
	c.AddCommand(newTokenCreate(p), newTokenList(p), newTokenRevoke(p))
	return c
}

// keys manages the tokens of a server or of a store.
type keys interface {
	create(ctx context.Context, t access.Token) (access.Token, string, error)
	list(ctx context.Context) ([]access.Token, error)
	revoke(ctx context.Context, name string) (access.Token, error)
}

// tokens is a command for tokens.
type tokens struct {
	*remote
	store string
	makes bool // creates the store if there is none
}

func newTokens(p process, c *cobra.Command) *tokens {
	t := &tokens{remote: newRemote(p, c)}
	c.Flags().StringVar(&t.store, "store", "", "store that no server is using: file:DIR or postgres://…")
	return t
}

// with calls f with the tokens of the store or of the server.
func (t *tokens) with(ctx context.Context, f func(ctx context.Context, k keys) error) error {
	if t.store == "" {
		return t.short(ctx, func(ctx context.Context, q queue) error {
			a, err := adminOf(q)
			if err != nil {
				return err
			}
			return f(ctx, remoteKeys{a})
		})
	}
	if err := t.check(); err != nil {
		return err
	}
	cfg := config.Default()
	cfg.Store = t.store
	s, err := server.OpenStore(ctx, &cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		return err
	}
	ring, err := access.NewKeyring(s, "")
	if err == nil {
		err = f(ctx, storeKeys{ring})
	}
	return errors.Join(err, s.Close())
}

// check rejects a store that cannot have or keep tokens.
func (t *tokens) check() error {
	u, err := storeurl.Parse(t.store)
	switch {
	case err != nil:
		return err
	case u.Scheme == "memory":
		return cli.Invalid("store", "memory: ends with this command; want file:DIR or postgres://…")
	case u.Scheme == "file" && !t.makes:
		if _, err := os.Stat(u.Dir); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is no store %s: %w", t.store, gq.ErrNotFound)
		}
	}
	return nil
}

// adminOf returns the admin API of a server.
func adminOf(q queue) (pb.AdminServiceClient, error) {
	a, ok := q.(interface{ Admin() pb.AdminServiceClient })
	if !ok {
		return nil, errors.New("there is no server")
	}
	return a.Admin(), nil
}

type storeKeys struct{ ring *access.Keyring }

func (k storeKeys) create(ctx context.Context, t access.Token) (access.Token, string, error) {
	return k.ring.Create(ctx, t)
}
func (k storeKeys) list(ctx context.Context) ([]access.Token, error) { return k.ring.List(ctx) }
func (k storeKeys) revoke(ctx context.Context, name string) (access.Token, error) {
	return k.ring.Revoke(ctx, name)
}

type remoteKeys struct{ admin pb.AdminServiceClient }

func (k remoteKeys) create(ctx context.Context, t access.Token) (access.Token, string, error) {
	r := &pb.CreateTokenRequest{Name: t.Name, Rate: int64(t.Rate)}
	if !t.ExpiresAt.IsZero() {
		r.ExpiresAt = timestamppb.New(t.ExpiresAt)
	}
	for _, g := range t.Grants {
		r.Grants = append(r.Grants, &pb.Grant{Scopes: g.Scopes.Names(), Queues: g.Queues})
	}
	answer, err := k.admin.CreateToken(ctx, r)
	if err != nil {
		return access.Token{}, "", err
	}
	return tokenFrom(answer.GetToken()), answer.GetText(), nil
}

func (k remoteKeys) list(ctx context.Context) ([]access.Token, error) {
	answer, err := k.admin.ListTokens(ctx, &pb.ListTokensRequest{})
	if err != nil {
		return nil, err
	}
	all := make([]access.Token, len(answer.GetTokens()))
	for i, t := range answer.GetTokens() {
		all[i] = tokenFrom(t)
	}
	return all, nil
}

func (k remoteKeys) revoke(ctx context.Context, name string) (access.Token, error) {
	t, err := k.admin.RevokeToken(ctx, &pb.RevokeTokenRequest{Token: name})
	if err != nil {
		return access.Token{}, err
	}
	return tokenFrom(t), nil
}

func tokenFrom(t *pb.Token) access.Token {
	out := access.Token{ID: t.GetId(), Name: t.GetName(), Rate: int(t.GetRate()), CreatedAt: t.GetCreatedAt().AsTime()}
	if at := t.GetExpiresAt(); at != nil {
		out.ExpiresAt = at.AsTime()
	}
	for _, g := range t.GetGrants() {
		grant := access.Grant{Queues: g.GetQueues()}
		for _, name := range g.GetScopes() {
			scope, _ := access.ParseScope(name) // a newer server may have more scopes
			grant.Scopes |= scope
		}
		out.Grants = append(out.Grants, grant)
	}
	return out
}

func shownToken(t *access.Token, text string) wire.Token {
	out := wire.Token{ID: t.ID, Name: t.Name, Rate: t.Rate, CreatedAt: t.CreatedAt.UTC(), ExpiresAt: t.ExpiresAt, Token: text}
	for _, g := range t.Grants {
		out.Grants = append(out.Grants, wire.Grant{Scopes: g.Scopes.Names(), Queues: g.Queues})
	}
	return out
}

func newTokenCreate(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "create NAME", Short: "Create a token and print it, only this once",
		Example: "  gq token create mailer --grant 'submit,read@mail.*' --expires 2160h",
		Args:    oneArgument("the name of the token"),
	}
	t := newTokens(p, c)
	t.makes = true
	var written, scopes, queues []string
	var rate int
	var expires time.Duration
	flags := c.Flags()
	flags.StringArrayVar(&written, "grant", nil, "SCOPES@QUEUES such as submit,read@mail.*; may be repeated")
	flags.StringSliceVar(&scopes, "scope", nil, "submit, work, read, observe or admin; with --queue, another way to write one grant")
	flags.StringSliceVar(&queues, "queue", nil, "queue patterns of --scope (default all)")
	flags.IntVar(&rate, "rate", 0, "calls a second that the token may make; 0 is no limit")
	flags.DurationVar(&expires, "expires", 0, "how long the token is valid; 0 is forever")
	c.RunE = func(c *cobra.Command, args []string) error {
		token := access.Token{Name: args[0], Rate: rate}
		if len(scopes) > 0 {
			written = append(written, strings.Join(scopes, ",")+"@"+strings.Join(orAll(queues), ","))
		} else if len(queues) > 0 {
			return cli.Invalid("queue", "goes together with --scope")
		}
		for _, text := range written {
			g, err := access.ParseGrant(text)
			if err != nil {
				return err
			}
			token.Grants = append(token.Grants, g)
		}
		if expires < 0 {
			return cli.Invalid("expires", "is negative")
		}
		if expires > 0 {
			token.ExpiresAt = time.Now().Add(expires).UTC().Truncate(time.Second)
		}
		return t.with(c.Context(), func(ctx context.Context, k keys) error {
			made, text, err := k.create(ctx, token)
			if err != nil {
				return err
			}
			return t.print(shownToken(&made, text), func(s screen) { s.line("%s", text) })
		})
	}
	return c
}

func orAll(queues []string) []string {
	if len(queues) == 0 {
		return []string{"*"}
	}
	return queues
}

func newTokenList(p process) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List tokens, without their secrets", Example: "  gq token list --json", Args: cli.NoArguments}
	t := newTokens(p, c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return t.with(c.Context(), func(ctx context.Context, k keys) error {
			all, err := k.list(ctx)
			if err != nil {
				return err
			}
			out := wire.Tokens{Tokens: make([]wire.Token, len(all))}
			rows := make([][]cell, len(all))
			for i := range all {
				out.Tokens[i] = shownToken(&all[i], "")
				rows[i] = []cell{text(all[i].ID), text(clean(all[i].Name)), text(grantsText(all[i].Grants)), text(callsText(all[i].Rate)), text(ago(all[i].CreatedAt)), text(ago(all[i].ExpiresAt))}
			}
			return t.print(out, func(s screen) {
				s.table([]string{"ID", "NAME", "GRANTS", "RATE", "MADE", "EXPIRES"}, rows)
			})
		})
	}
	return c
}

func grantsText(grants []access.Grant) string {
	texts := make([]string, len(grants))
	for i, g := range grants {
		texts[i] = clean(g.String())
	}
	return strings.Join(texts, " ")
}

func callsText(rate int) string {
	if rate == 0 {
		return ""
	}
	return fmt.Sprintf("%d/s", rate)
}

func newTokenRevoke(p process) *cobra.Command {
	c := &cobra.Command{Use: "revoke TOKEN", Short: "Revoke a token, named by its id or name", Example: "  gq token revoke mailer\n  gq token revoke mailer --yes", Args: oneArgument("the id or name of a token")}
	t := newTokens(p, c)
	yes := yesFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if machine.CheckName("token", args[0]) != nil {
			return cli.Invalid("token", fmt.Sprintf("%.64q is not the id or name of a token", args[0]))
		}
		if err := t.confirm(*yes, "Revoke the token "+args[0]+" for good?"); err != nil {
			return err
		}
		return t.with(c.Context(), func(ctx context.Context, k keys) error {
			gone, err := k.revoke(ctx, args[0])
			if err != nil {
				return err
			}
			return t.print(shownToken(&gone, ""), func(s screen) { s.line("revoked %s (%s)", clean(gone.Name), gone.ID) })
		})
	}
	return c
}
