package ckptsidecar

// Release is the version of this program and of its clients. packaging/release.py writes it.
const Release = "0.9.0"

// Version is the answer of /v1/version.
type Version struct {
	Name    string `json:"name"` // ckptsidecar
	Version string `json:"version"`
	API     int    `json:"api"`    // the number in the paths
	Schema  int    `json:"schema"` // of the database
}
