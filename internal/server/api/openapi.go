package api

import (
	_ "embed" // for the document
	"net/http"
)

// PathOpenAPI is the path of the OpenAPI document.
const PathOpenAPI = "/v1/openapi.json"

//go:embed openapi.json
var openAPIDocument []byte

func (h *Handler) openAPI(w http.ResponseWriter, _ *http.Request, _ caller) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	// An error here means that the caller has disconnected.
	_, _ = w.Write(openAPIDocument)
	return nil
}
