// Package file opens queues inside the process: file:DIR, which is durable, and memory:,
// which is gone with the process. Import it for its effect:
//
//	import _ "github.com/gopherqueue/gq/driver/file"
package file

import (
	"context"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/storeurl"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

func init() {
	gq.RegisterDriver("file", open)
	gq.RegisterDriver("memory", open)
}

func open(_ context.Context, url string, o gq.OpenOptions) (gq.Driver, error) {
	u, err := storeurl.Parse(url)
	if err != nil {
		return nil, err
	}
	options := local.Options{Config: store.Config{Limits: o.Limits, Backoffs: o.Backoffs}, Log: o.Log}
	var s *local.Store
	if u.Scheme == "memory" {
		s, err = local.OpenMemory(options)
	} else {
		s, err = local.Open(u.Dir, options)
	}
	if err != nil {
		return nil, err
	}
	return engine.Start(s, engine.Options{Log: o.Log, Preset: o.DefaultPreset})
}
