package postgres

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgtype"
)

// arrays is a faster encoder for the slices that statements take as columns. The codec of
// pgx, which it embeds for everything else, boxes each element.
type arrays struct{ *pgtype.ArrayCodec }

// registerArrays makes a connection encode arrays with arrays. An application's
// connections work without it.
func registerArrays(m *pgtype.Map) {
	for _, oid := range []uint32{pgtype.Int8ArrayOID, pgtype.Int2ArrayOID, pgtype.TextArrayOID, pgtype.ByteaArrayOID, pgtype.UUIDArrayOID} {
		t, ok := m.TypeForOID(oid)
		if !ok {
			continue
		}
		if codec, ok := t.Codec.(*pgtype.ArrayCodec); ok {
			m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: arrays{codec}})
		}
	}
}

// registerIDs makes a connection encode ids as uuid even if it does not ask the server for
// parameter types, as an application may have configured it.
func registerIDs(m *pgtype.Map) {
	if m == nil {
		return
	}
	m.RegisterDefaultPgType([16]byte{}, "uuid")
	m.RegisterDefaultPgType([][16]byte{}, "_uuid")
}

// PlanEncode implements [pgtype.Codec].
func (c arrays) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case []int64:
			if oid == pgtype.Int8ArrayOID {
				return encodeArray[int64]{pgtype.Int8OID, 8, appendInt64}
			}
		case []*int64:
			if oid == pgtype.Int8ArrayOID {
				return encodeArray[*int64]{pgtype.Int8OID, 8, appendOptional}
			}
		case []int16:
			if oid == pgtype.Int2ArrayOID {
				return encodeArray[int16]{pgtype.Int2OID, 2, appendInt16}
			}
		case []string:
			if oid == pgtype.TextArrayOID {
				return encodeArray[string]{pgtype.TextOID, 16, appendString}
			}
		case [][]byte:
			if oid == pgtype.ByteaArrayOID {
				return encodeArray[[]byte]{pgtype.ByteaOID, 100, appendBytes}
			}
		case [][16]byte:
			if oid == pgtype.UUIDArrayOID {
				return encodeArray[[16]byte]{pgtype.UUIDOID, 16, appendUUID}
			}
		}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// encodeArray encodes a slice as a one-dimensional array in binary format.
type encodeArray[T any] struct {
	element uint32
	size    int // estimated size of an element in bytes
	add     func(b []byte, v T) []byte
}

const null = 0xffffffff // as a length

// Encode implements [pgtype.EncodePlan].
func (e encodeArray[T]) Encode(value any, b []byte) ([]byte, error) {
	values := value.([]T)
	if values == nil {
		return nil, nil // NULL
	}
	if need := 20 + len(values)*(4+e.size); cap(b)-len(b) < need {
		b = append(make([]byte, 0, max(len(b)+need, 2*cap(b))), b...)
	}
	b = binary.BigEndian.AppendUint32(b, 1) // dimension
	b = binary.BigEndian.AppendUint32(b, 1) // there may be a NULL
	b = binary.BigEndian.AppendUint32(b, e.element)
	b = binary.BigEndian.AppendUint32(b, uint32(len(values)))
	b = binary.BigEndian.AppendUint32(b, 1) // the first index
	for i := range values {
		b = e.add(b, values[i])
	}
	return b, nil
}

func appendInt64(b []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(v))
}

func appendOptional(b []byte, v *int64) []byte {
	if v == nil {
		return binary.BigEndian.AppendUint32(b, null)
	}
	return appendInt64(b, *v)
}

func appendInt16(b []byte, v int16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(b, 2), uint16(v))
}

func appendString(b []byte, v string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

func appendBytes(b []byte, v []byte) []byte {
	if v == nil {
		return binary.BigEndian.AppendUint32(b, null)
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

func appendUUID(b []byte, v [16]byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, 16), v[:]...)
}
