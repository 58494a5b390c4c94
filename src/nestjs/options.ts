import { ConfigurableModuleBuilder } from '@nestjs/common';
import type { IdClientOptions } from '../client/index.ts';

/** The static methods of the module, with the extra option `isGlobal`, and the token of the options. */
export const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN } = new ConfigurableModuleBuilder<IdClientOptions>({
  moduleName: 'Idalloc',
})
  .setClassMethodName('forRoot')
  .setExtras({ isGlobal: true }, (definition, { isGlobal }) => ({ ...definition, global: isGlobal }))
  .build();
