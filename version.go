package ckptsidecar

// Version is the answer of /v1/version.
type Version struct {
	Name    string `json:"name"` // ckptsidecar
	Version string `json:"version"`
	API     int    `json:"api"`    // the number in the paths
	Schema  int    `json:"schema"` // of the database
}
