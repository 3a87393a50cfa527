package table

// template is a parsed topic template.
type template struct{}
