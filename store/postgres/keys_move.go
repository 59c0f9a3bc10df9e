package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// ownKeys reads the limit keys with limits of their own.
func (x *export) ownKeys(ctx context.Context, after string, limit int, items *store.Items) (last string, err error) {
	return x.limitKeys(ctx, "config IS NOT NULL", after, limit, func(queue, key string, _ int64, config []byte) error {
		k := gq.QueueKey{}
		if err := json.Unmarshal(config, &k); err != nil {
			return fmt.Errorf("limits of key %q of queue %s: %w: %w", key, queue, gq.ErrCorrupt, err)
		}
		items.Keys = append(items.Keys, k)
		return nil
	})
}

// owed reads what keys owe.
func (x *export) owed(ctx context.Context, after string, limit int, items *store.Items) (last string, err error) {
	return x.limitKeys(ctx, "due <> 0", after, limit, func(queue, key string, due int64, _ []byte) error {
		items.Owed = append(items.Owed, store.OwedItem{Queue: queue, Key: key, Due: instant(due)})
		return nil
	})
}

func (x *export) limitKeys(ctx context.Context, which, after string, limit int, visit func(queue, key string, due int64, config []byte) error) (last string, err error) {
	queue, key, _ := strings.Cut(after, "\x00")
	rows, err := x.tx.Query(ctx, `
		SELECT queue, key, due, config
		FROM gq.limit_key
		WHERE (queue, key) > ($1, $2) AND `+which+`
		ORDER BY queue, key
		LIMIT $3`,
		queue, key, limit)
	if err != nil {
		return "", err
	}
	var due int64
	var config []byte
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&queue, &key, &due, &config}, func() error {
		n++
		last = queue + "\x00" + key
		err := visit(queue, key, due, config)
		config = nil
		return err
	})
	if n < limit {
		last = ""
	}
	return last, err
}

// importKeys adds the limits of keys and what keys owe. A key is set aside by the first claim
// that meets one of its jobs.
func (tx *txn) importKeys(items *store.Items) error {
	for _, k := range items.Keys {
		config, err := json.Marshal(k)
		if err != nil {
			return err
		}
		tx.more.Queue("INSERT INTO gq.limit_key (queue, key, config) VALUES ($1, $2, $3) ON CONFLICT (queue, key) DO UPDATE SET config = excluded.config", k.Queue, k.Key, config)
	}
	for _, o := range items.Owed {
		tx.more.Queue("INSERT INTO gq.limit_key (queue, key, due) VALUES ($1, $2, $3) ON CONFLICT (queue, key) DO UPDATE SET due = excluded.due", o.Queue, o.Key, nanoseconds(o.Due))
	}
	return nil
}
