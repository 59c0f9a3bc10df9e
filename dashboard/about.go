package dashboard

import (
	"runtime"

	"github.com/gopherqueue/gq"
)

type aboutView struct {
	Stats    gq.Stats
	Settings []Setting
	Go       string
}

func (d *Dashboard) about(v *visit) error {
	stats, err := d.queue.Stats(v.ctx)
	if err != nil {
		return err
	}
	view := aboutView{Stats: stats, Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH}
	if d.options.Sources.Settings != nil {
		view.Settings, err = d.options.Sources.Settings(v.ctx)
		if kindOf(err) == gq.KindDenied { // the rest of the page is for everybody
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return v.show("about", "About", view)
}
