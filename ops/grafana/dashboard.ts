// Writes the dashboard from its panels. Usage: npm run dashboard
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Builder } from '@grafana/grafana-foundation-sdk/cog';
import {
  DashboardBuilder,
  DatasourceVariableBuilder,
  type Panel,
  QueryVariableBuilder,
  RowBuilder,
  VariableRefresh,
} from '@grafana/grafana-foundation-sdk/dashboard';
import { DataqueryBuilder } from '@grafana/grafana-foundation-sdk/prometheus';
import { PanelBuilder as StatBuilder } from '@grafana/grafana-foundation-sdk/stat';
import { PanelBuilder as TimeSeriesBuilder } from '@grafana/grafana-foundation-sdk/timeseries';
import { readableJson } from '../dev/json.ts';
import { type PanelSpec, ROWS } from './panels.ts';

/** The file that operators import into Grafana. */
export const DASHBOARD_FILE = join(import.meta.dirname, 'dashboard.json');

/** The importer chooses Prometheus in the dashboard itself. */
// biome-ignore lint/suspicious/noTemplateCurlyInString: Grafana's notation of a variable
const SOURCE = { type: 'prometheus', uid: '${source}' };
/** Of Grafana's 24 columns. */
const SPAN = { now: 4, 'over time': 8 } as const;
const HEIGHT = { now: 4, 'over time': 8 } as const;

function panelOf({ title, about, kind, unit, queries }: PanelSpec, id: number): Builder<Panel> {
  const targets = queries.map(({ expr, legend }, i) =>
    new DataqueryBuilder()
      .refId(String.fromCharCode('A'.charCodeAt(0) + i))
      .expr(expr)
      .legendFormat(legend),
  );
  const panel = kind === 'now' ? new StatBuilder() : new TimeSeriesBuilder().fillOpacity(10);
  return panel
    .id(id)
    .title(title)
    .description(about)
    .unit(unit)
    .datasource(SOURCE)
    .targets(targets)
    .span(SPAN[kind])
    .height(HEIGHT[kind]);
}

/** The text of the dashboard's file. */
export function renderDashboard(): string {
  const source = new DatasourceVariableBuilder('source').label('Prometheus').type('prometheus');
  const job = new QueryVariableBuilder('job')
    .label('Job')
    .query('label_values(idalloc_group_joined, job)')
    .datasource(SOURCE)
    .refresh(VariableRefresh.OnTimeRangeChanged)
    .multi(true)
    .includeAll(true)
    .allValue('.*')
    .current({ selected: true, text: 'All', value: '$__all' });
  const dashboard = new DashboardBuilder('idalloc')
    .uid('idalloc')
    .description('Workers that allocate IDs: from what requesters notice to its causes.')
    .tags(['idalloc'])
    .time({ from: 'now-1h', to: 'now' })
    .refresh('30s')
    .variables([source, job]);
  let id = 0;
  for (const { title, panels } of ROWS) {
    id += 1;
    dashboard.withRow(new RowBuilder(title).id(id));
    for (const panel of panels) {
      id += 1;
      dashboard.withPanel(panelOf(panel, id));
    }
  }
  return readableJson(dashboard.build());
}

if (import.meta.main) writeFileSync(DASHBOARD_FILE, renderDashboard());
