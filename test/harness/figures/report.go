package figures

import "github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"

// Report has the figures of a program that prints them as JSON.
type Report struct {
	Rows []table.Row `json:"rows"`
	// Notes explain the rows, a paragraph each.
	Notes []string `json:"notes"`
}
