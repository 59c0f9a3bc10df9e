package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
)

// uniqueFlags make a job unique.
type uniqueFlags struct {
	while, onCollision string
	period             time.Duration
	fields             []string
}

func (f *uniqueFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.while, "unique", "", "the only job with its --key or --unique-by fields while it is: waiting, live (waiting or running) or not done; with --unique-for: period")
	flags.DurationVar(&f.period, "unique-for", 0, "unique for this long after its submission, whatever becomes of it")
	flags.StringSliceVar(&f.fields, "unique-by", nil, "unique by these fields of the JSON payload instead of a key")
	flags.StringVar(&f.onCollision, "on-collision", "", "if another job holds the key: existing (print its id), refuse, replace (only a waiting job), debounce (postpone it by --delay) or throttle (one per --unique-for) (default existing)")
}

// rule returns the rule that the flags describe.
func (f *uniqueFlags) rule() (u gq.UniqueRule, faults []gq.Fault) {
	u = gq.UniqueRule{Period: f.period, Fields: f.fields}
	var err error
	if f.while != "" {
		u.While, err = enum.Parse[gq.While](f.while)
		faults = append(faults, errs.FaultsOf(err)...)
	}
	if f.onCollision != "" {
		u.OnCollision, err = enum.Parse[gq.OnCollision](f.onCollision)
		faults = append(faults, errs.FaultsOf(err)...)
	}
	for i := range faults {
		faults[i].Field = flagOf[faults[i].Field]
	}
	return u, faults
}
