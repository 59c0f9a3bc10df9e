package client

import "time"

const SubmitCalls = submitCalls

// GatherWithin sets how long a call of Submit waits for others to return.
func GatherWithin(c *Client, d time.Duration) { c.gatherer.within = d }

// Waiting returns how many calls of Submit wait for others to return.
func Waiting(c *Client) int {
	c.gatherer.mu.Lock()
	defer c.gatherer.mu.Unlock()
	return len(c.gatherer.waiting)
}
