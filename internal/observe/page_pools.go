package observe

import (
	"context"

	dto "github.com/prometheus/client_model/go"

	"github.com/gopherqueue/gq"
)

// ofPools reports the capacity of pools, the scheduler's among them. A store has at most
// [gq.MaxPools].
func (m *Metrics) ofPools(ctx context.Context) ([]*dto.MetricFamily, error) {
	source, ok := m.source.(interface {
		Pools(ctx context.Context) ([]gq.Pool, error)
	})
	if !ok {
		return nil, nil
	}
	pools, err := source.Pools(ctx)
	if err != nil {
		return nil, err
	}
	capacity := newFamily("gq_pool_capacity_units", "Cost units that the running jobs of a pool may occupy together.", dto.MetricType_GAUGE)
	used := newFamily("gq_pool_used_units", "Cost units that the jobs of a pool occupy now.", dto.MetricType_GAUGE)
	name := "pool"
	for i := range pools {
		label := &dto.LabelPair{Name: &name, Value: &pools[i].Name}
		capacity.add(float64(pools[i].Capacity), label)
		used.add(float64(pools[i].Used), label)
	}
	return []*dto.MetricFamily{capacity.MetricFamily, used.MetricFamily}, nil
}
