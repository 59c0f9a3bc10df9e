package dashboard

import "slices"

// deliveriesPerPage is the number of deliveries on a page.
const deliveriesPerPage = 50

type webhooksView struct {
	Deliveries []Delivery
	State      string
	First      bool
	Next       string
}

func (d *Dashboard) webhooks(v *visit) error {
	if d.options.Sources.Deliveries == nil {
		return v.notHere()
	}
	q := v.r.URL.Query()
	view := webhooksView{State: q.Get("state"), First: q.Get("cursor") == ""}
	if !slices.Contains([]string{"pending", "dead", "delivered"}, view.State) {
		view.State = ""
	}
	var err error
	view.Deliveries, view.Next, err = d.options.Sources.Deliveries(v.ctx, view.State, q.Get("cursor"), deliveriesPerPage)
	if err != nil {
		return err
	}
	v.watch = "all"
	return v.show("webhooks", "Webhooks", view)
}

func (d *Dashboard) redeliver(v *visit) error {
	if d.options.Sources.Redeliver == nil {
		return v.notHere()
	}
	id := v.r.PostForm.Get("id")
	err := d.options.Sources.Redeliver(v.ctx, id)
	if v.audit("redeliver", "delivery "+clean(id, 100), err) != nil {
		return err
	}
	return v.done("webhooks", "redelivered")
}
