# install rules: see MtrainPlugin.cmake for the plugin side
