package client

import "time"

const SubmitCalls = submitCalls

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
