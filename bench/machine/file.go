package main

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
)

// databaseBytes returns how large a database is, including the data that still waits in its
// write-ahead log: the number of pages after the last commit, in bytes. It reads the files in
// SQLite's documented format. The daemon, which has them open, is another process, so closing the
// files here does not release its locks.
func databaseBytes(path string) (int64, error) {
	var head [100]byte
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.ReadAt(head[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	page := int64(binary.BigEndian.Uint16(head[16:]))
	if page == 1 {
		page = 65536
	}
	pages := int64(binary.BigEndian.Uint32(head[28:]))
	fromLog, logPage, err := pagesInLog(path + "-wal")
	if err != nil {
		return 0, err
	}
	if fromLog > 0 {
		return fromLog * logPage, nil
	}
	return pages * page, nil
}

// pagesInLog returns the number of pages after the last commit in a write-ahead log, and the page
// size. It returns 0 if there is no log.
func pagesInLog(path string) (pages, page int64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	const headSize, frameHeadSize = 32, 24
	var head [headSize]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return 0, 0, ignoreEOF(err)
	}
	page = int64(binary.BigEndian.Uint32(head[8:]))
	salts := string(head[16:24])
	var frame [frameHeadSize]byte
	for at := int64(headSize); ; at += frameHeadSize + page {
		if _, err := f.ReadAt(frame[:], at); err != nil {
			return pages, page, ignoreEOF(err)
		}
		if string(frame[8:16]) != salts { // of an earlier round of the log
			return pages, page, nil
		}
		if n := int64(binary.BigEndian.Uint32(frame[4:])); n > 0 { // a commit
			pages = n
		}
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}
