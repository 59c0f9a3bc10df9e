package matchmaker

import (
	"context"
	"time"
)

// reading is the store's time, and the local time when it was read.
type reading struct{ there, here time.Time }

// clockTrust is how long the local clock is trusted to run as fast as the store's.
const clockTrust = time.Second

// now returns the store's time: the last reading plus the time elapsed since, so that
// adjusting the local clock changes nothing. A clock configured for the store may stand
// still, so it is read each time.
func (d *Dispatcher) now() time.Time {
	if r := d.clock.Load(); r != nil && d.store.Config().Clock == nil {
		return r.there.Add(time.Since(r.here))
	}
	return d.engine.Now()
}

// readClock reads the store's time, which decides what is due.
func (d *Dispatcher) readClock(ctx context.Context) error {
	if r := d.clock.Load(); r != nil && time.Since(r.here) < clockTrust {
		return nil
	}
	here := time.Now()
	now, err := d.store.Now(ctx)
	if err == nil {
		d.clock.Store(&reading{now, here})
	}
	return err
}
