package server

import (
	_ "embed" // for the document
	"net/http"
)

// PathOpenAPI is where the API describes itself.
const PathOpenAPI = "/v1/openapi.json"

//go:embed openapi.json
var openAPIDocument []byte

func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request, _ caller) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	// A caller that has gone away needs no answer.
	_, _ = w.Write(openAPIDocument)
	return nil
}
