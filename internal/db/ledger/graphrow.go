package ledger

import "hash/crc32"

// GraphWriteRow is a stored graph write.
type GraphWriteRow struct {
	Task    string `db:"task"`
	Idx     int64  `db:"idx"`
	Path    string `db:"path"`
	Channel string `db:"channel"`
	Type    string `db:"type"`
	Size    int64  `db:"size"`
	CRC     uint32 `db:"crc"`
	Data    []byte `db:"data"`
}

var Castagnoli = crc32.MakeTable(crc32.Castagnoli)
