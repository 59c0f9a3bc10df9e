package matchmaker

import (
	"context"
	"time"
)

// moment is an instant of the store's clock and when it was here.
type moment struct{ there, here time.Time }

// clockTrust is how long our clock is trusted to go as fast as the store's.
const clockTrust = time.Second

// now is the store's time, as far as it is known here: what it said last, and
// what has passed since. Setting the clock of this machine changes nothing. The clock
// that a store was given may stand still, so that one is read.
func (d *Dispatcher) now() time.Time {
	if d.store.Config().Clock != nil {
		return d.engine.Now()
	}
	if m := d.heard.Load(); m != nil {
		return m.there.Add(time.Since(m.here))
	}
	return d.engine.Now()
}

// listen asks the store for its time: the one by which it judges what is due.
func (d *Dispatcher) listen(ctx context.Context) error {
	if m := d.heard.Load(); m != nil && time.Since(m.here) < clockTrust {
		return nil
	}
	here := time.Now()
	due, err := d.store.Due(ctx, 1)
	if err == nil && !due.Now.IsZero() {
		d.heard.Store(&moment{due.Now, here})
	}
	return err
}
