package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/services/internal/monolith"
)

const nodeLong = `Run one node of design B of the task queue: all six services in one process. Any
number of identical nodes share the jobs; each job belongs to the node that its
id hashes to, by 64-bit FNV-1a modulo the number of nodes. All nodes must be
given the same peers in the same order:

  gqlab node --listen :7000 --peers a:7000,b:7000,c:7000 --index 0

A node serves the whole public API, and forwards calls about jobs of other nodes.
Only ListJobs is about the jobs of one node alone. Everything is in memory. Log,
first line of output, security and environment are as in gqlab svc.`

func newNode(p process) *cobra.Command {
	var f nodeFlags
	var config monolith.Config
	c := &cobra.Command{
		Use: "node", Short: "Run a node of the task queue's design B", Long: nodeLong, Args: cli.NoArguments,
		Example: "  gqlab node --listen 127.0.0.1:7000\n  gqlab node --listen :7000 --peers a:7000,b:7000,c:7000 --index 0",
		RunE: func(c *cobra.Command, _ []string) error {
			err := fromEnvironment(c.Flags(), p.getenv)
			if err != nil {
				return err
			}
			if config.Log, err = f.log(p, fmt.Sprintf("node-%d", config.Index)); err != nil {
				return err
			}
			if len(config.Peers) == 0 { // a single node
				config.Peers = []string{f.listen}
			}
			for i, peer := range config.Peers {
				config.Peers[i] = strings.TrimSpace(peer)
			}
			if err := config.Validate(); err != nil {
				return fmt.Errorf("%w: %w", gq.ErrInvalid, err)
			}
			n, err := monolith.New(config)
			if err != nil {
				return err
			}
			defer n.Close() //nolint:errcheck // nothing depends on it any more
			return serveNode(c.Context(), p, f.listen, config.Log, part{n.Register, n.Run})
		},
	}
	f.add(c.Flags(), true)
	c.Flags().StringSliceVar(&config.Peers, "peers", nil, "addresses of all nodes, this one included (default: this one alone)")
	c.Flags().IntVar(&config.Index, "index", 0, "place of this node among the peers, from 0")
	c.Flags().IntVar(&config.Slots, "slots", 1, "jobs that run at the same time")
	return c
}
