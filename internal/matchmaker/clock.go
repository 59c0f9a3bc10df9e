package matchmaker

import (
	"context"
	"time"
)

// reading is the store's time, and when it was read here.
type reading struct{ there, here time.Time }

// clockTrust is how long this machine's clock is trusted to run as fast as the store's.
const clockTrust = time.Second

// now is the store's time: what it said last, plus what has passed since, so that setting the
// clock of this machine changes nothing. A clock that the store was opened with may stand
// still, so that one is read each time.
func (d *Dispatcher) now() time.Time {
	if r := d.clock.Load(); r != nil && d.store.Config().Clock == nil {
		return r.there.Add(time.Since(r.here))
	}
	return d.engine.Now()
}

// readClock asks the store for its time, by which it judges what is due.
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
