package files

import (
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
)

// documentEntry returns the name of a file's entry in its document, such as
// "write_files[2] /etc/motd".
func documentEntry(c *bootstrapdata.Config, index int) string {
	if c.Format == bootstrapdata.FormatIgnition {
		return "file " + c.Files[index].Path
	}
	return fmt.Sprintf("write_files[%d] %s", index, c.Files[index].Path)
}

// Steps returns the steps that write the files with the given value of Defer.
func Steps(c *bootstrapdata.Config, deferred bool) []step.Step {
	var steps []step.Step
	for i, f := range c.Files {
		if f.Defer != deferred {
			continue
		}
		s := File{
			Label: documentEntry(c, i), Path: f.Path,
			User: f.User, Group: f.Group, UID: f.UID, GID: f.GID, Mode: f.Mode, keepMode: f.KeepMode, DirMode: 0o755,
			Compute: func([]byte, bool) []byte { return f.Content },
		}
		if f.Append {
			s.appends = true
			s.Compute = func(old []byte, _ bool) []byte { return append(append([]byte{}, old...), f.Content...) }
		}
		steps = append(steps, s)
	}
	return steps
}
