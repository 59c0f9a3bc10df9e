package client

import (
	"context"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/pbconv"
)

const (
	SubmitCalls = submitCalls
	MaxBytes    = maxBytes
	MaxItems    = maxItems
)

// GatherWithin sets how long a call of Submit waits for others to return, and then for the
// request that it shares with others.
func GatherWithin(c *Client, within, shared time.Duration) {
	c.gatherer.within, c.gatherer.shared = within, shared
}

// Waiting returns how many calls of Submit wait for others to return.
func Waiting(c *Client) int {
	c.gatherer.mu.Lock()
	defer c.gatherer.mu.Unlock()
	return len(c.gatherer.waiting)
}

// ClaimOnEnded opens the Work stream, runs end, and claims through the stream when it has ended.
func ClaimOnEnded(ctx context.Context, c *Client, end func()) error {
	s, err := c.work.open(ctx)
	if err != nil {
		return err
	}
	end()
	<-s.done
	_, _, err = s.claim(ctx, pbconv.ProtoClaim(&gq.ClaimRequest{Worker: "w", N: 1}))
	return err
}

// Introduces returns the workers that the client names to a server.
func Introduces(c *Client) []string { return c.work.hello().GetWorkers() }

// Ended returns the error of a call whose context has ended while no server was reachable.
func Ended(ctx context.Context, c *Client) error { return c.ended(ctx) }
