package cloudconfig

import "strings"

// The MIME types by which cloud-init distinguishes documents
// (cloudinit.readthedocs.io, "User-data formats").
const (
	typeCloudConfig = "text/cloud-config"
	typeScript      = "text/x-shellscript"
	typeJinja       = "text/jinja2"
	typePlain       = "text/plain"
	typeUnknown     = "text/x-not-multipart"
)

// detectType returns the type of a text by its header, or "".
func detectType(text string) string {
	lower := strings.ToLower(strings.TrimLeft(text, " \t\r\n\v\f"))
	for _, h := range []struct{ prefix, mime string }{ // longest first
		{"#cloud-config-archive", "text/cloud-config-archive"},
		{"#cloud-config-jsonp", "text/cloud-config-jsonp"},
		{headerJinja, typeJinja},
		{"#cloud-boothook", "text/cloud-boothook"},
		{headerCloudConfig, typeCloudConfig},
		{"#include-once", "text/x-include-once-url"},
		{"#part-handler", "text/part-handler"},
		{"#upstart-job", "text/upstart-job"},
		{"#include", "text/x-include-url"},
		{"#!", typeScript},
	} {
		if strings.HasPrefix(lower, h.prefix) {
			return h.mime
		}
	}
	return ""
}

// describeType returns a description of an unsupported type for an error, or "".
func describeType(mime string) string {
	switch mime {
	case "text/cloud-config-archive":
		return "a cloud-config archive"
	case "text/cloud-config-jsonp":
		return "a JSON patch of cloud-config"
	case "text/cloud-boothook":
		return "a boothook, which would run at every boot; use bootcmd"
	case "text/x-include-once-url", "text/x-include-url":
		return "an include list; remote sources are not fetched"
	case "text/part-handler":
		return "a part handler"
	case "text/upstart-job":
		return "an upstart job"
	case "text/x-shellscript-per-boot", "text/x-shellscript-per-instance", "text/x-shellscript-per-once":
		return "a script for cloud-init's own schedule; use text/x-shellscript"
	}
	return ""
}

// isCompressed reports whether a type is gzip data.
func isCompressed(mime string) bool {
	switch mime {
	case "application/gzip", "application/gzip-compressed", "application/gzipped", "application/x-compress",
		"application/x-compressed", "application/x-gunzip", "application/x-gzip", "application/x-gzip-compressed":
		return true
	}
	return false
}

const (
	headerCloudConfig = "#cloud-config"
	headerJinja       = "## template: jinja"
)
