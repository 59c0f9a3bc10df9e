package dashboard

// providersPerPage is the number of providers on a page.
const providersPerPage = 100

type providersView struct {
	Providers []Provider
	After     string
	Next      string
}

func (d *Dashboard) providers(v *visit) error {
	if d.options.Sources.Providers == nil {
		return v.notHere()
	}
	view := providersView{After: clean(v.r.URL.Query().Get("after"), 256)}
	list, err := d.options.Sources.Providers(v.ctx, view.After, providersPerPage+1)
	if err != nil {
		return err
	}
	if len(list) > providersPerPage {
		list = list[:providersPerPage]
		view.Next = list[providersPerPage-1].ID
	}
	view.Providers = list
	v.watch = "all"
	return v.show("providers", "Providers", view)
}
