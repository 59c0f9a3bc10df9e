package dashboard

// shownTokens is the number of tokens on the page.
const shownTokens = 500

type tokensView struct {
	Tokens []Token
	More   int // that are not shown
}

func (d *Dashboard) tokens(v *visit) error {
	if d.options.Sources.Tokens == nil {
		return v.notHere()
	}
	list, err := d.options.Sources.Tokens(v.ctx)
	if err != nil {
		return err
	}
	view := tokensView{Tokens: list}
	if len(list) > shownTokens {
		view.Tokens, view.More = list[:shownTokens], len(list)-shownTokens
	}
	v.watch = "clock"
	return v.show("tokens", "Access tokens", view)
}
