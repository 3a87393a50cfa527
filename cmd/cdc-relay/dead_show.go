package main

import (
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/lifecycle"
)

// shownRow is a DEAD row with everything in it. A payload that is no text is in base64; null: SQL NULL.
type shownRow struct {
	lifecycle.DeadRow
	Headers       map[string]string `json:"headers"`
	Payload       *string           `json:"payload"`
	PayloadBase64 string            `json:"payload_base64,omitempty"`
}

func (a *app) deadShowCommand() *cobra.Command {
	var tableName string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show one DEAD row with its headers and payload", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDead(cmd.Context(), func(d *lifecycle.Dead) error {
				rows, err := d.Show(cmd.Context(), tableName, args[0])
				switch {
				case err != nil:
					return err
				case len(rows) == 0:
					return fmt.Errorf("there is no DEAD row with the id %s", args[0])
				case len(rows) > 1:
					return usagef("%d tables have a DEAD row with the id %s: name one with --table", len(rows), args[0])
				}
				row := shown(rows[0])
				if asJSON {
					return printJSON(a.out, row)
				}
				return a.showDead(row)
			})
		},
	}
	cmd.Flags().StringVar(&tableName, "table", "", "the outbox `TABLE`, when several have a row with this id")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func shown(r lifecycle.DeadRow) shownRow {
	row := shownRow{DeadRow: r, Headers: map[string]string{}}
	for _, h := range r.Headers {
		row.Headers[h.Name] = h.Value
	}
	switch {
	case r.Payload == nil:
	case utf8.Valid(r.Payload):
		text := string(r.Payload)
		row.Payload = &text
	default:
		row.PayloadBase64 = base64.StdEncoding.EncodeToString(r.Payload)
	}
	return row
}

func (a *app) showDead(row shownRow) error {
	cells := [][]string{
		{"table", row.Table}, {"id", row.ID}, {"message id", row.MessageID}, {"topic", row.Topic}, {"key", keyText(row.Key)},
		{"event type", row.EventType}, {"attempts", fmt.Sprint(row.Attempts)}, {"created", row.CreatedAt.UTC().Format(time.RFC3339)},
		{"dead for", deadFor(row.DeadRow)}, {"last error", row.LastError},
	}
	for _, h := range row.DeadRow.Headers {
		cells = append(cells, []string{"header " + h.Name, h.Value})
	}
	switch {
	case row.Payload != nil:
		cells = append(cells, []string{"payload", *row.Payload})
	case row.PayloadBase64 != "":
		cells = append(cells, []string{"payload (base64)", row.PayloadBase64})
	default:
		cells = append(cells, []string{"payload", "(NULL)"})
	}
	return printTable(a.out, nil, cells)
}
