package parser

import (
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/cloudconfig"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/ignition"
)

// Parse reads bootstrap data. format is the format in the bootstrap Secret; "" means
// cloud-config. This format includes the others of cloud-init: scripts and MIME
// messages. vars are the variables of Jinja templates. The same
// input always gives the same Config, which the caller owns.
//
// An error is a *bootstrapdata.ParseError. Parse checks the whole document before
// it returns a Config, so a faulty document is never executed in part.
func Parse(data []byte, format string, vars bootstrapdata.Variables) (*bootstrapdata.Config, []bootstrapdata.Warning, error) {
	switch format {
	case "", bootstrapdata.FormatCloudConfig:
		return cloudconfig.Parse(data, vars)
	case bootstrapdata.FormatIgnition:
		return ignition.Parse(data)
	default:
		return nil, nil, bootstrapdata.ErrorAt(0, "bootstrap data has the unknown format %q; known are %q and %q", format, bootstrapdata.FormatCloudConfig, bootstrapdata.FormatIgnition)
	}
}
