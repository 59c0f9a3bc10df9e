package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/observe"
	"github.com/gopherqueue/gq/server"
	"github.com/gopherqueue/gq/server/config"
)

// newServe is design C: the server of gq serve, with the flags that the comparison
// uses. Its configuration also comes from the environment.
func newServe(p process) *cobra.Command {
	keys := map[string]*string{}
	c := &cobra.Command{
		Use: "serve", Short: "Run the server of gq serve", Hidden: true, Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			sources := config.Sources{Env: p.getenv, Flags: map[string]string{}}
			for key, value := range keys {
				if *value != "" {
					sources.Flags[key] = *value
				}
			}
			loaded, err := config.Load(sources)
			if err != nil {
				return err
			}
			cfg := loaded.Config
			ctx := c.Context()
			s, err := server.Open(ctx, cfg, server.Options{Log: observe.NewLog(p.stderr, "gq", cfg.Log.Level), Version: cli.Version("gqlab")})
			if err != nil {
				return err
			}
			if err := s.Listen(ctx); err != nil {
				return errors.Join(err, s.Close())
			}
			fmt.Fprintf(p.stdout, "listening http=%s grpc=%s\n", s.HTTPAddr(), s.GRPCAddr())
			return errors.Join(s.Run(ctx), s.Close())
		},
	}
	defaults := config.Default()
	for _, s := range defaults.Settings() {
		keys[s.Key] = c.Flags().String(s.Flag(), "", s.Usage)
	}
	return c
}
