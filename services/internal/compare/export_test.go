package compare

import "fmt"

// Replay searches with the rows of a run instead of measuring, and returns the limit and
// the rates in the order in which the search asks for them.
func (p Plan) Replay(rows []Row) (l Limit, rates []float64, err error) {
	l, _, err = p.search(nil, func(rate float64) (string, error) {
		rates = append(rates, rate)
		for _, r := range rows {
			if r.Cell.Rate == rate {
				return p.broken(rate, r.Report), nil
			}
		}
		return "", fmt.Errorf("no row has %v requests/s", rate)
	})
	return l, rates, err
}
